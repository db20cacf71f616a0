#!/bin/sh
# Finds a Python from 3.11 on, and hands over to launch.py beside this file with the same arguments:
#
#     launch.sh serve plain|sandbox|docker [--OPTION=VALUE ...]    what .mcp.json starts
#     launch.sh notice plain|sandbox|docker                        what the SessionStart hook starts
#
# stdin and stdout are the client's: nothing here reads the one or writes the other, but for a notice.
set -u
# PATH without what lies in the workspace, or is reached through it: programs there may be a repository's own.
trusted() {
    workspace=$(cd -P "$CLAUDE_PROJECT_DIR" && pwd -P) || return
    IFS=:
    set -f
    for entry in $PATH; do
        case $entry/ in /*) ;; *) continue ;; esac
        real=$(cd -P "$entry" 2>/dev/null && pwd -P) || continue
        case $entry/ in "$CLAUDE_PROJECT_DIR"/*) continue ;; esac
        case $real/ in "$workspace"/*) continue ;; esac
        printf '%s:' "$real"
    done
}
PATH=$(trusted)
PATH=${PATH%:}

here=$(dirname "$0")
# Where uv and Python look for configuration; the workspace is not trusted with that.
cd "${CLAUDE_PLUGIN_DATA:?is not set: Claude Code 2.1 or later starts this}" 2>/dev/null ||
    { mkdir -p "$CLAUDE_PLUGIN_DATA" && cd "$CLAUDE_PLUGIN_DATA"; } || exit 1

suits() {
    "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

# The one that an earlier start has found spares the search.
[ -x python ] && exec ./python -I -S -B "$here/launch.py" "$@"

for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    suits "$name" && exec "$name" -I -S -B "$here/launch.py" "$@"
done

if command -v uv >/dev/null; then
    python=$(uv python find --no-project '>=3.11' </dev/null 2>/dev/null) || {
        echo "ipybox: uv installs Python" >&2
        uv python install 3.13 </dev/null >&2 && python=$(uv python find --no-project 3.13 </dev/null)
    }
    suits "$python" && exec "$python" -I -S -B "$here/launch.py" "$@"
fi

wrong="ipybox can't run code here: there is neither uv nor a Python from 3.11 on."
mend="Tell the user to install uv (from their system's packages) or Python 3.11, and to reconnect ipybox with /mcp then."
if [ "${1-}" = notice ]; then
    printf '%s\n%s\n' "$wrong" "$mend"
else
    printf '%s\n%s\n' "$wrong" "$mend" >&2
    exit 1
fi
