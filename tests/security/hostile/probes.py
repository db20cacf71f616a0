"""What the repository tries, and in which ways it got there before the host stopped to believe what lies in it.

Each probe is a mark that must not be there, or a canary that must not be in what anybody sees; see `Evidence.reached`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.security.hostile import insider
from tests.security.hostile.before import BEFORE
from tests.security.hostile.contents import DOTENV, MODULES, PROGRAMS, RELATIVE_PROGRAMS

#: The ways in which all is tried, and those with a `.env`.
WHOLE = ("script", "module", "console", "plugin")
SERVED = ("module", "console", "plugin")
HOSTS = (*SERVED, "plain", "environment", "http")


@dataclass(frozen=True)
class Probe:
    """One attack.

    Attributes:
        area: What it abuses.
        name: What is tried.
        key: The name of its mark, or a pattern of such names, or the name of a canary.
        ways: The ways in which it is tried; see `test_hostile_repository`.
    """

    area: str
    name: str
    key: str
    ways: tuple[str, ...]

    @property
    def before(self) -> tuple[str, ...]:
        """The ways in which it reached its aim in the last version that had no rule against it."""
        return BEFORE.get(self.key, ())

    def __str__(self) -> str:
        return self.name


def _each(area: str, name: str, key: str, values: Iterable[str], ways: tuple[str, ...]) -> list[Probe]:
    return [Probe(area, name.format(value), key.format(value), ways) for value in values]


ENV, SETTINGS, IMPORTS, PATH = ".env", "settings", "imports", "PATH"
SERVERS, GIT, SEALS, SECRETS, FILES, NOTICES = "MCP servers", "git", "seals", "secrets", "files", "notices"

PROBES = [
    *_each(ENV, "{} of a program that the host starts", "env-{}", DOTENV, HOSTS),
    Probe(ENV, "a seal forged by a key that it brings (XDG_STATE_HOME)", "forged-seal", SERVED),
    Probe(ENV, "the token for HTTP (IPYBOX_TOKEN)", "known-token", ("http",)),
    Probe(ENV, "the program that shows a sign-in (BROWSER)", "browser", (*SERVED, "plain")),
    Probe(ENV, "BROWSER, after code has written .env", "browser-of-code", SERVED),
    Probe(ENV, "BROWSER in a directory that code has made", "browser-of-directory", ("module",)),
    Probe(ENV, "a file with the keys of TLS (SSLKEYLOGFILE)", "tls-keys", (*SERVED, "plain")),
    Probe(ENV, "requests to MCP servers (HTTP_PROXY)", "trap-http-proxy", (*SERVED, "plain")),
    Probe(ENV, "an index of packages (PIP_EXTRA_INDEX_URL)", "trap-pip-index", SERVED),
    Probe(ENV, "a proxy of pip (PIP_CONFIG_FILE)", "trap-pip-proxy", SERVED),
    Probe(ENV, "modules for programs in Python (PYTHONPATH)", "pythonpath-*", (*HOSTS, "script")),
    Probe(ENV, "where the host works (TMPDIR)", "scratch", SERVED),
    Probe(ENV, "a pip that is planted where the host works", "scratch-pip", SERVED),
    Probe(ENV, "a variable of the host, interpolated for the kernel", "environment", WHOLE),
    Probe(ENV, "a variable of the host, interpolated with a default", "environment-aws", WHOLE),
    Probe(SETTINGS, "writing to the home", "home-written", WHOLE),
    Probe(SETTINGS, "reaching a port of the host", "trap-kernel", WHOLE),
    *_each(SETTINGS, "reading the home: {}", "{}", ("ssh", "aws", "gh", "history", "npmrc", "state"), WHOLE),
    Probe(SETTINGS, "accepting tool calls (ipybox.yaml)", "approved-by-nobody", ("console",)),
    Probe(SETTINGS, "a server of .mcp.json or .cursor", "mcp-json", WHOLE),
    Probe(SETTINGS, "hooks of agents", "claude-hook", WHOLE),
    Probe(SETTINGS, "tasks of editors and containers, .envrc", "[vde][sen][cv][ocr]*", WHOLE),
    Probe(SETTINGS, "configuration in Python", "configuration-in-python", WHOLE),
    Probe(SETTINGS, "configuration of Jupyter", "jupyter", WHOLE),
    *_each(IMPORTS, "{}.py of the repository", "module-{}", MODULES, (*WHOLE, "plain", "commands", "http")),
    Probe(IMPORTS, "sitecustomize.py and usercustomize.py", "module-*customize", (*WHOLE, "plain", "commands")),
    Probe(IMPORTS, "modules in .ipybox/packages", "packages-*", WHOLE),
    *_each(IMPORTS, "{}.py that code has planted", "planted-{}", ("packaging", "httpcore2", "jupyter_core"), WHOLE),
    Probe(IMPORTS, "any other module that code has planted", "planted-[!phj]*", WHOLE),
    Probe(IMPORTS, "the Python of an environment behind a link", "environment-python", ("environment",)),
    Probe(IMPORTS, "modules of an environment behind a link", "environment-[!p]*", ("environment",)),
    *_each(PATH, "{} in node_modules/.bin", "path-{}", PROGRAMS, (*WHOLE, "plain", "commands")),
    *_each(PATH, "{} in a relative directory", "relative-path-{}", RELATIVE_PROGRAMS, WHOLE),
    *_each(PATH, "{} in a directory that code has made", "new-path-{}", insider.NEW_PROGRAMS, WHOLE),
    *_each(PATH, "{} where code has led a link", "linked-path-{}", insider.LINKED_PROGRAMS, WHOLE),
    Probe(SERVERS, "python -m, with its module in the repository", "module-mcp_server_git", WHOLE),
    Probe(SERVERS, "python with a script in the repository", "server-python-script", WHOLE),
    Probe(SERVERS, "python -c, which imports a module there", "server-python-code", WHOLE),
    Probe(SERVERS, "a program with a relative path", "server-relative-program", WHOLE),
    Probe(SERVERS, "npx", "server-npx", WHOLE),
    Probe(SERVERS, "npx in a shell", "server-npx-in-shell", WHOLE),
    Probe(SERVERS, "npm start, with a script of package.json", "server-npm-start", WHOLE),
    Probe(SERVERS, "npx, with options of .npmrc", "npmrc-node-options", WHOLE),
    Probe(SERVERS, "node, which requires a module there", "server-node-require", WHOLE),
    Probe(SERVERS, "uv run, which builds the repository", "server-uv-run", WHOLE),
    Probe(SERVERS, "make", "server-make", WHOLE),
    Probe(GIT, "core.fsmonitor", "git-core.fsmonitor", WHOLE),
    # Those around a commit are started by GitPython, which obeys no configuration.
    Probe(GIT, "a hook after a checkout (core.hooksPath)", "git-hooks-of-vendored-post-checkout", WHOLE),
    Probe(GIT, "hooks of git itself (core.hooksPath)", "git-hooks-of-vendored-post-[!c]*", WHOLE),
    Probe(GIT, "a hook after a checkout (.git/hooks)", "git-hooks-of-unpacked-post-checkout", WHOLE),
    Probe(GIT, "hooks of git itself (.git/hooks)", "git-hooks-of-unpacked-post-[!c]*", WHOLE),
    Probe(SEALS, "a package of an earlier registration", "registered-before", WHOLE),
    Probe(SEALS, "the same after a restart", "registered-before-the-restart", WHOLE),
    Probe(SECRETS, "what $KUBECONFIG names", "KUBECONFIG", WHOLE),
    Probe(SECRETS, "what $AWS_SHARED_CREDENTIALS_FILE names", "AWS_SHARED_CREDENTIALS_FILE", WHOLE),
    Probe(SECRETS, "what $GOOGLE_APPLICATION_CREDENTIALS names", "GOOGLE_APPLICATION_CREDENTIALS", WHOLE),
    Probe(SECRETS, "what $NETRC names", "NETRC", WHOLE),
    Probe(SECRETS, ".env", "dotenv", WHOLE),
    Probe(SECRETS, ".env in a directory below", "dotenv-nested", WHOLE),
    Probe(SECRETS, ".env below [id]", "dotenv-below-brackets", WHOLE),
    Probe(SECRETS, ".env below a*b", "dotenv-below-an-asterisk", WHOLE),
    Probe(SECRETS, ".env below q?", "dotenv-below-a-question-mark", WHOLE),
    Probe(SECRETS, ".env in node_modules", "dotenv-of-a-dependency", WHOLE),
    Probe(SECRETS, ".ENV", "dotenv-in-capitals", WHOLE),
    Probe(SECRETS, ".claude/settings.local.json", "settings-of-an-agent", WHOLE),
    *_each(FILES, "changing {}", "lasting-{}", insider.LASTING, WHOLE),
    Probe(FILES, "a package through a link for mcptools", "outside-mcptools", WHOLE),
    Probe(FILES, "an image through a link for images", "outside-images", WHOLE),
    Probe(FILES, "anything through a link for .ipybox", "outside-link-.ipybox", ("links",)),
    Probe(FILES, "a package through a link for .ipybox/packages", "outside-link-packages", ("links",)),
    Probe(FILES, "the audit log through a link", "outside-link-audit.jsonl", ("links",)),
    Probe(NOTICES, "text that looks like a notice of the host", "forged-notice", WHOLE),
    Probe(NOTICES, "characters that terminals obey", "control-characters", ("commands",)),
]
