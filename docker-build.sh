#!/bin/sh
# Builds the image for `ipybox docker`, for whoever calls this: files in the workspace are theirs.
#
#     docker-build.sh                                        the image "ipybox", with node
#     docker-build.sh --target ipybox                        smaller, without node
#     docker-build.sh --build-arg PACKAGES="pandas scipy"    with other packages than matplotlib
#     IPYBOX_IMAGE=NAME docker-build.sh                      under another name
#
# All arguments are those of `docker build`, such as --network host where containers have no network of their own.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Root can start containers as any user, but the image's own is never root.
ids=
[ "$(id -u)" -eq 0 ] || ids="--build-arg UID=$(id -u) --build-arg GID=$(id -g)"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/pyproject.toml")

# Beside the links of plugins/package, what they lead to is outside of the context: tar follows them.
export COPYFILE_DISABLE=1 # else macOS adds files of its own
# shellcheck disable=SC2086 # ids are words
tar -C "$here" -ch --exclude __pycache__ Dockerfile .dockerignore ipybox pyproject.toml README.md LICENSE constraints.txt |
    docker build --tag "${IPYBOX_IMAGE:-ipybox}" $ids --build-arg VERSION="$version" "$@" -
