#!/bin/sh
# Installs what the sandbox runs, and the Debian packages that are named besides, where there is apt-get, and root or sudo
# without a password. Elsewhere it does nothing: the tests say in the end what was missing.
set -eu
missing=$*
[ "$(uname)" = Linux ] || exit 0
command -v bwrap >/dev/null || missing="$missing bubblewrap"
command -v socat >/dev/null || missing="$missing socat"
command -v rg >/dev/null || missing="$missing ripgrep"
[ -n "$missing" ] && command -v apt-get >/dev/null || exit 0
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || exit 0
    as_root="sudo -n"
fi
echo "Installing with apt-get, as the tests of the sandbox need it:" $missing
{
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $missing
} >/dev/null || echo "apt-get could not install all of it." >&2
