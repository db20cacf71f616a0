"""Errors of files that the sandbox has refused are explained."""

import pytest

from ipybox.sandbox.policy import SandboxPolicy
from tests.sandbox.denials.texts import refused


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("PermissionError: [Errno 13] Permission denied: '.env'", ".env", id="python"),
        pytest.param("PermissionError: [Errno 13] Permission denied: b'./.env'", "./.env", id="python_bytes"),
        pytest.param(
            "FileNotFoundError: [Errno 2] No such file or directory: 'HOME/.ssh/id_rsa'",
            "HOME/.ssh/id_rsa",
            id="python_directory",
        ),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'link'", "link", id="python_link"),
        pytest.param("cat: HOME/.netrc: Permission denied", "HOME/.netrc", id="cat"),
        pytest.param("cat: .env: Permission denied", ".env", id="cat_relative"),
        pytest.param("cat: x.pem: Permission denied", "x.pem", id="cat_glob"),
        pytest.param("cat: secret/g: No such file or directory", "secret/g", id="cat_directory"),
        pytest.param("cat: link: No such file or directory", "link", id="cat_link"),
        pytest.param("head: cannot open 'HOME/.netrc' for reading: Permission denied", "HOME/.netrc", id="head"),
        pytest.param("cp: cannot open '.env' for reading: Permission denied", ".env", id="cp"),
        pytest.param("bash: line 1: HOME/.netrc: Permission denied", "HOME/.netrc", id="bash"),
        pytest.param("/usr/bin/bash: line 1: .env: Permission denied", ".env", id="bash_with_its_path"),
        pytest.param("sh: 1: cannot open HOME/.netrc: Permission denied", "HOME/.netrc", id="sh"),
        pytest.param("bash: line 1: ./.env: Permission denied", "./.env", id="bash_source"),
        pytest.param("sed: can't read .env: Permission denied", ".env", id="sed"),
        pytest.param("awk: cannot open .env (Permission denied)", ".env", id="awk"),
        pytest.param(".env: Permission denied (os error 13)", ".env", id="ripgrep"),
        pytest.param("dd: failed to open '.env': Permission denied", ".env", id="dd"),
        pytest.param("curl: (37) Couldn't open file HOME/.netrc", "HOME/.netrc", id="curl"),
        pytest.param("EACCES: permission denied, open 'HOME/.netrc'", "HOME/.netrc", id="node"),
        pytest.param(
            "ENOENT: no such file or directory, open 'HOME/.ssh/id_rsa'", "HOME/.ssh/id_rsa", id="node_directory"
        ),
        pytest.param("sh: 1: cannot create x.pem: Permission denied", "x.pem", id="writing_a_hidden_file"),
        pytest.param("\x1b[31mcat: .env: Permission denied\x1b[0m", ".env", id="colors"),
    ],
)
def test_a_file_that_was_hidden_is_named(policy: SandboxPolicy, text: str, path: str):
    assert refused(f"first line\n{text}\nlast line\n", policy) == [f"to open {path}"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("OSError: [Errno 30] Read-only file system: '/etc/x'", "/etc/x", id="python"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'a.txt' -> '/etc/l'", "/etc/l", id="python_link"),
        pytest.param("OSError: [Errno 18] Invalid cross-device link: 'a.txt' -> '/etc/a'", "/etc/a", id="rename"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'keep.txt'", "keep.txt", id="python_denied"),
        pytest.param("touch: cannot touch '/etc/x': Read-only file system", "/etc/x", id="touch"),
        pytest.param("bash: line 1: /etc/hosts: Read-only file system", "/etc/hosts", id="bash"),
        pytest.param("/usr/bin/bash: line 1: keep.txt: Read-only file system", "keep.txt", id="bash_with_its_path"),
        pytest.param("sh: 1: cannot create /etc/hosts: Read-only file system", "/etc/hosts", id="sh"),
        pytest.param("sh: 1: cannot create keep.txt: Read-only file system", "keep.txt", id="sh_denied"),
        pytest.param(
            "mkdir: cannot create directory ‘../out/a’: Read-only file system", "../out/a", id="mkdir_typographic"
        ),
        pytest.param("cp: cannot create regular file '/etc/a.txt': Read-only file system", "/etc/a.txt", id="cp"),
        pytest.param(
            "mv: inter-device move failed: 'a.txt' to '/etc/a'; unable to remove target: Read-only file system",
            "/etc/a",
            id="mv",
        ),
        pytest.param(
            "sed: couldn't open temporary file /etc/sedLabeVp: Read-only file system", "/etc/sedLabeVp", id="sed"
        ),
        pytest.param("tar: /etc/q.tar: Cannot open: Read-only file system", "/etc/q.tar", id="tar"),
        pytest.param("fatal: cannot mkdir /etc/g: Read-only file system", "/etc/g", id="git"),
        pytest.param(
            "error: could not lock config file /home/me/.gitconfig: Read-only file system",
            "/home/me/.gitconfig",
            id="git_config",
        ),
        pytest.param("/etc/q: Read-only file system", "/etc/q", id="wget"),
        pytest.param("Error: EROFS: read-only file system, open '/etc/x'", "/etc/x", id="node"),
        pytest.param("EROFS: read-only file system, copyfile 'a.txt' -> '/etc/b'", "/etc/b", id="node_copy"),
        pytest.param("OSError: [Errno 30] Read-only file system: '/etc/zz'", "/etc/zz", id="pip"),
        pytest.param(
            "sh: 1: cannot create .git/hooks/pre-commit: Read-only file system", ".git/hooks/pre-commit", id="hook"
        ),
        pytest.param("OSError: [Errno 30] Read-only file system: '.mcp.json'", ".mcp.json", id="protected"),
    ],
)
def test_a_file_that_was_read_only_is_named(policy: SandboxPolicy, text: str, path: str):
    assert refused(f"first line\n{text}\nlast line\n", policy) == [f"to write {path}"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("mv: cannot move '.git/hooks' to '.git/h2': Device or resource busy", ".git/hooks", id="mv"),
        pytest.param("rm: cannot remove '.env': Device or resource busy", ".env", id="rm"),
        pytest.param("rmdir: failed to remove 'secret': Device or resource busy", "secret", id="rmdir"),
        pytest.param("OSError: [Errno 16] Device or resource busy: '.git' -> '.g'", ".git", id="python_parent"),
        pytest.param("EBUSY: resource busy or locked, rename '.git/hooks' -> '.git/h'", ".git/hooks", id="node"),
    ],
)
def test_what_could_not_be_moved_or_removed_is_named(policy: SandboxPolicy, text: str, path: str):
    assert refused(text, policy) == [f"to move or remove {path}"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("PermissionError: [Errno 13] Permission denied: '/var/log/x'", id="other_permission"),
        pytest.param("PermissionError: [Errno 13] Permission denied: 'a.txt'", id="permission_in_the_workspace"),
        pytest.param("touch: cannot touch '/home/me/x': Permission denied", id="other_permission_to_write"),
        pytest.param("bash: line 1: ./a.txt: Permission denied", id="not_executable"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", id="missing"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: '.env'", id="missing_file_of_deny_read"),
        pytest.param("FileNotFoundError: [Errno 2] No such file or directory: 'HOME/x'", id="missing_beside"),
        pytest.param(
            "FileNotFoundError: [Errno 2] No such file or directory: 'secret/open/x'", id="missing_in_allowed"
        ),
        pytest.param("/usr/bin/bash: line 1: x.txt: Read-only file system", id="path_of_the_shell"),
        pytest.param("OSError: [Errno 30] Read-only file system: 'a.txt'", id="read_only_itself"),
        pytest.param("OSError: [Errno 30] Read-only file system: '/proc/sys/x'", id="proc"),
        pytest.param("OSError: [Errno 16] Device or resource busy: 'a.txt'", id="busy"),
        pytest.param("OSError: [Errno 16] Device or resource busy: 'config'", id="name_without_its_directory"),
        pytest.param("OSError: [Errno 30] Read-only file system", id="no_path"),
        pytest.param("Permission denied", id="words"),
        pytest.param("No such file or directory, permission denied, read-only file system", id="more_words"),
        pytest.param("The .env file has no permissions, and secret/g is read-only.", id="paths_without_an_error"),
        pytest.param("----> 1 raise OSError(\"Permission denied: '.env'\")", id="ipython_code"),
        pytest.param("      2     fail('.env: Permission denied')", id="ipython_code_around"),
        pytest.param("    raise OSError('.env: Permission denied')", id="python_code"),
        pytest.param("mount: /mnt: Operation not permitted", id="other_operation"),
        pytest.param("PermissionError: [Errno 1] Operation not permitted", id="other_operation_without_a_path"),
        pytest.param("PermissionError: [Errno 13] Permission denied: '\\udc80\0'", id="no_path_at_all"),
        pytest.param("x" * 5000 + " cat: .env: Permission denied", id="line_of_data"),
        pytest.param("Temporary failure in name resolution", id="words_of_a_resolver"),
        pytest.param("log: Name or service not known, Network is unreachable", id="words_of_a_network"),
        pytest.param("ConnectionRefusedError: [Errno 111] Connection refused", id="refused_by_a_peer"),
        pytest.param("urllib.error.HTTPError: HTTP Error 403: Forbidden", id="answer_of_a_server"),
        pytest.param("http://example.org/\nrequests: 403 Client Error: Forbidden for url: x", id="no_proxy_to_forbid"),
    ],
)
def test_ordinary_errors_and_other_text_are_not_explained(policy: SandboxPolicy, text: str):
    assert refused(text, policy) == []


def test_macos_has_its_own_error_for_files(policy: SandboxPolicy):
    reading = "PermissionError: [Errno 1] Operation not permitted: 'HOME/.ssh/id_rsa'"
    writing = "touch: /etc/x: Operation not permitted"

    assert refused(f"{reading}\n{writing}", policy, macos=True) == ["to open HOME/.ssh/id_rsa", "to write /etc/x"]
    assert refused(f"{reading}\n{writing}", policy, macos=False) == []
