"""Names and values in the repository and in its user's home."""

#: The content of a file of the user that nobody changes.
AS_IT_WAS = "# as it was\n"

#: What the repository knows, where ipybox has secrets.
KEY = bytes(range(32))
TOKEN = "known-to-the-repository"

#: Modules that ipybox imports, and that are in the repository. Code plants all others that there are.
MODULES = ("aiohttp", "anyio", "httpx2", "jsonschema", "mcp", "mcp_types", "psutil", "pydantic", "starlette", "yaml")

#: Programs in directories of the repository that are on the user's PATH, as tools like direnv put them there: one that
#: is there, and one that is relative. Code makes a third one, and changes where a fourth one, a link, leads.
PROGRAMS = ("bwrap", "socat", "rg", "node", "which", "npx", "uvx", "rustc", "docker", "python3")
RELATIVE_PROGRAMS = ("git", "xdg-open")

#: What the `.env` of the repository sets; `{here}` is its directory, `{door}` a port behind which it waits.
DOTENV = {
    "XDG_STATE_HOME": "{here}/st",
    "XDG_CONFIG_HOME": "{here}/conf",
    "TMPDIR": "{here}/tmp",
    "BROWSER": "{here}/bin/browser %s",
    "IPYBOX_TOKEN": TOKEN,
    "HTTP_PROXY": "http://trap-http-proxy:x@{door}",
    "HTTPS_PROXY": "http://trap-https-proxy:x@{door}",
    "ALL_PROXY": "http://trap-all-proxy:x@{door}",
    "SSL_CERT_FILE": "{here}/ca.pem",
    "SSLKEYLOGFILE": "{here}/tls-keys.log",
    "PIP_EXTRA_INDEX_URL": "http://{door}/trap-pip-index/",
    "PIP_CONFIG_FILE": "{here}/pip.conf",
    "UV_DEFAULT_INDEX": "http://{door}/trap-uv-index/",
    "NPM_CONFIG_USERCONFIG": "{here}/.npmrc",
    "PYTHONPATH": "{here}/pylib",
    "PATH": "{here}/bin",
    "LD_PRELOAD": "{here}/evil.so",
    "LD_LIBRARY_PATH": "{here}/lib",
    "OPENSSL_CONF": "{here}/openssl.cnf",
    "NODE_OPTIONS": "--require={here}/evil.js",
    "NODE_EXTRA_CA_CERTS": "{here}/ca.pem",
    "GIT_SSH_COMMAND": "{here}/bin/browser",
    "GIT_CONFIG_GLOBAL": "{here}/.gitconfig",
    "GIT_EXTERNAL_DIFF": "{here}/bin/browser",
    "JUPYTER_CONFIG_DIR": "{here}/jupyter",
    "JUPYTER_RUNTIME_DIR": "{here}/run",
    "DOCKER_HOST": "tcp://{door}",
}

#: Settings of git that name a program, and what it becomes when it has left its mark.
GIT_PROGRAMS = {
    "core.fsmonitor": None,
    "diff.external": "true",
    "diff.planted.command": "true",
    "filter.planted.clean": "cat",
    "filter.planted.smudge": "cat",
}

#: Files of the user outside of the workspace, below the home unless a variable of the environment says where.
SECRETS = {
    "ssh": ".ssh/id_rsa",
    "aws": ".aws/credentials",
    "gh": ".config/gh/hosts.yml",
    "history": ".bash_history",
    "state": ".local/state/ipybox/oauth/tokens.json",
    "KUBECONFIG": "../elsewhere/kube",
    "AWS_SHARED_CREDENTIALS_FILE": "../elsewhere/aws",
    "GOOGLE_APPLICATION_CREDENTIALS": "../elsewhere/google.json",
    "NETRC": "../elsewhere/netrc",
}

#: Files of the user in the workspace.
WORKSPACE_SECRETS = {
    "dotenv": ".env",
    "dotenv-nested": "sub/.env",
    "dotenv-below-brackets": "app/[id]/.env",
    "dotenv-below-an-asterisk": "app/a*b/.env",
    "dotenv-below-a-question-mark": "app/q?/.env",
    "dotenv-of-a-dependency": "node_modules/dependency/.env",
    "dotenv-in-capitals": "app/.ENV",
    "settings-of-an-agent": ".claude/settings.local.json",
}
