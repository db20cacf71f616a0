#!/usr/bin/env bash
# Sees to it that there is a Docker engine with a base image, and prints `export DOCKER_HOST=...` if it is not the
# machine's own. What is there is used. Otherwise root on Debian gets an engine of its own below DIRECTORY, without
# networks but the host's; and where no registry can be reached, a stand-in for the base image, of Debian's packages.
#
#     tests/docker/ensure-docker.sh           a few seconds if all is there, a minute if nothing is
#     tests/docker/ensure-docker.sh --stop    ends the engine and removes what it had
set -euo pipefail

DIRECTORY=${DOCKER_TEST_DIR:-/tmp/docker-test}
BASE=${BASE:-python:3.11-slim}
START_TIMEOUT=30
CERTIFICATES=etc/ssl/certs/ca-certificates.crt

main() {
    if [ "${1-}" = --stop ]; then
        stop
        return
    fi
    if ! answers; then
        export DOCKER_HOST=unix://$DIRECTORY/docker.sock
        answers || start
    fi
    docker image inspect "$BASE" >/dev/null 2>&1 || timeout 60 docker pull --quiet "$BASE" >/dev/null 2>&1 || stand_in
    [ -z "${DOCKER_HOST-}" ] || echo "export DOCKER_HOST=$DOCKER_HOST"
}

say() {
    echo "ensure-docker: $*" >&2
}

answers() {
    command -v docker >/dev/null && timeout 5 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

# Installs Debian packages.
install() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "needs $* here; only root on Debian can have it installed"
        exit 1
    fi
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" >/dev/null
}

start() {
    command -v dockerd >/dev/null && command -v docker >/dev/null || install docker.io
    mkdir -p "$DIRECTORY/data"
    say "starts an engine in $DIRECTORY"
    # In memory if there is plenty: layers are many small files, which a disk takes long to write and to remove.
    if awk '/^MemAvailable:/ { exit $2 < 16 * 2 ^ 20 }' /proc/meminfo && ! mountpoint -q "$DIRECTORY/data"; then
        mount -t tmpfs -o size=8g tmpfs "$DIRECTORY/data"
    fi
    # In a session of its own: it outlives whatever has started this.
    setsid dockerd --host "$DOCKER_HOST" --data-root "$DIRECTORY/data" --exec-root "$DIRECTORY/exec" \
        --pidfile "$DIRECTORY/docker.pid" --bridge=none --iptables=false --ip6tables=false --ip-forward=false \
        </dev/null >"$DIRECTORY/dockerd.log" 2>&1 &
    local engine=$! deadline=$((SECONDS + START_TIMEOUT))
    until answers; do
        if [ "$SECONDS" -ge "$deadline" ] || ! kill -0 "$engine" 2>/dev/null; then
            tail -n 5 "$DIRECTORY/dockerd.log" >&2
            say "the engine did not start"
            exit 1
        fi
        sleep 0.1 # it has no signal for it that a shell could wait for
    done
}

# Imports an image that looks like the official one of Python: programs in /usr/local/bin, and pip may install there.
stand_in() {
    command -v mmdebstrap >/dev/null || install mmdebstrap
    say "no registry has $BASE: a stand-in takes its place"
    local mirror hooks changes scratch=$DIRECTORY/scratch
    mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
        awk '$1 == "deb" { print $2; exit }' /etc/apt/sources.list)
    hooks=(
        --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED'
        --customize-hook='chroot "$1" python3 -m venv /usr/local'
    )
    changes=(
        --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
        --change 'ENV LANG=C.UTF-8'
        --change 'CMD ["python3"]'
    )
    # What leads this machine's programs to their indexes leads the image's, too.
    if [ -s "/$CERTIFICATES" ]; then
        hooks+=(--customize-hook="cp -L /$CERTIFICATES \"\$1\"/$CERTIFICATES")
        changes+=(--change "ENV PIP_CERT=/$CERTIFICATES" --change "ENV SSL_CERT_FILE=/$CERTIFICATES")
    fi
    if [ -s /etc/pip.conf ]; then
        hooks+=(--customize-hook='cp -L /etc/pip.conf "$1"/etc/pip.conf')
    fi
    for variable in PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX; do
        [ -z "${!variable-}" ] || changes+=(--change "ENV $variable=${!variable}")
    done
    # In memory: dpkg waits for the disk after each file.
    mkdir -p "$scratch"
    mount -t tmpfs -o size=4g tmpfs "$scratch"
    trap 'umount "$DIRECTORY/scratch"' EXIT
    TMPDIR=$scratch mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io \
        --include=python3-venv,ca-certificates "${hooks[@]}" bookworm - "$mirror" 2>"$DIRECTORY/mmdebstrap.log" |
        docker import "${changes[@]}" - "$BASE" >/dev/null
}

stop() {
    local engine deadline=$((SECONDS + START_TIMEOUT))
    engine=$(cat "$DIRECTORY/docker.pid" 2>/dev/null) || return 0
    kill "$engine"
    while kill -0 "$engine" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
    grep -o " $DIRECTORY/[^ ]*" /proc/self/mounts | sort -r | xargs -r umount --lazy
    rm -rf "$DIRECTORY"
}

main "$@"
