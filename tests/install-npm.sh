#!/bin/sh
# Installs the npm packages of tests/package.json into .npm, or only those that are named, in their pinned versions.
set -eu
cd "$(dirname "$0")/.."
mkdir -p .npm
if [ $# -eq 0 ]; then
    cp tests/package.json .npm/package.json
    npm install --prefix .npm --no-package-lock --no-audit --no-fund --loglevel=error
    # All but the conformance suite is to run with the machine's own node.
    rm -f .npm/node_modules/.bin/node
else
    for name in "$@"; do
        version=$(node -p "require('./tests/package.json').dependencies['$name']")
        npm install --prefix .npm --no-package-lock --no-save --no-audit --no-fund --loglevel=error "$name@$version"
    done
fi
