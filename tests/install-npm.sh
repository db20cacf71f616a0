#!/bin/sh
# Installs the npm packages of tests/package.json into .npm, or only those that are named, in their pinned versions, and
# without names also the newest Claude Code, into .npm/newest.
set -eu
cd "$(dirname "$0")/.."
mkdir -p .npm
if [ $# -eq 0 ]; then
    cp tests/package.json .npm/package.json
    npm install --prefix .npm --no-package-lock --no-audit --no-fund --loglevel=error
    # npm's own node is for the conformance suites; as a program of .bin it would be everybody's.
    rm -f .npm/node_modules/.bin/node
    # It says that it needs Node 22, but what it installs is a program of its own.
    mkdir -p .npm/newest
    cp tests/claude/package.json .npm/newest/package.json
    npm install --prefix .npm/newest --no-package-lock --no-audit --no-fund --loglevel=error
else
    for name in "$@"; do
        version=$(node -p "require('./tests/package.json').dependencies['$name']")
        npm install --prefix .npm --no-package-lock --no-save --no-audit --no-fund --loglevel=error "$name@$version"
    done
fi
