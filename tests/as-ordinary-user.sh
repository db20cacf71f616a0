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
        tar -c .npm | as_user tar -x -m -C "$copy"
        as_user touch "$copy/.npm/dev.stamp"
    fi
    if compiled_here; then
        make_there COMPILE= .venv/dev.stamp .npm/dev.stamp
        share_compiled
    else
        make_there .venv/dev.stamp .npm/dev.stamp
    fi
}

packages=lib/python3.11/site-packages

# Whether both environments have the same packages, compiled for the same Python: to compile them takes twenty seconds
# of processor time.
compiled_here() {
    [ -e .venv/dev.stamp ] && [ -n "$(find ".venv/$packages/pydantic/__pycache__" -name 'main.*.pyc' 2>/dev/null)" ] &&
        [ "$(as_user "$python" -c "$bytecode")" = "$(.venv/bin/python -c "$bytecode")" ]
}
bytecode='import importlib.util, sys; print(sys.version_info[:2] == (3, 11), importlib.util.MAGIC_NUMBER.hex())'

# Copies modules together with what they were compiled to, as that is valid only for the time of the module.
share_compiled() {
    (cd ".venv/$packages" && find . -path ./bin -prune -o \( -name '*.py' -o -name '*.pyc' \) ! -path '*ipybox*' -print0) |
        tar -c -C ".venv/$packages" --null --files-from=- | as_user tar -x -C "$copy/.venv/$packages"
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
