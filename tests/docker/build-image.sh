#!/bin/sh
# Builds an image for tests, with a real MCP server in it and what people plot with:
#
#     tests/docker/build-image.sh [--build-arg ...]      options of `docker build`
#
# IPYBOX_IMAGE is its name. DOCKER_BUILD is the script that builds it, by default that of these sources. The engine that
# ensure-docker.sh starts has only the host's network.
set -eu
script=${DOCKER_BUILD:-$(dirname -- "$0")/../../docker-build.sh}
exec sh "$script" --network host --build-arg PACKAGES="matplotlib mcp-server-time" "$@"
