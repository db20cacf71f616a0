#!/bin/sh
# Finds a Python and hands over to the programs next to this file:
#
#     launch.sh serve plain|sandbox|docker [--OPTION=VALUE ...]    what .mcp.json starts: relay.py
#     launch.sh start plain|sandbox|docker [--OPTION=VALUE ...]    what relay.py starts if its own Python is too old
#     launch.sh notice plain|sandbox|docker                        what the SessionStart hook starts: launch.py
#
# ipybox itself needs Python 3.11 or later. relay.py, which answers the client first, runs with 3.8. Without any Python,
# this script answers the client, and tells each call what to install.
set -u
if [ -z "${CLAUDE_PROJECT_DIR:-}" ]; then # Copilot installs the plugin, too
    echo "ipybox: only Claude Code tells this plugin its project: elsewhere, add ipybox with \`ipybox install\`" >&2
    exit 1
fi
# PATH without directories in the workspace, or reached through it: their programs may come from a repository.
workspace=$(cd -P "$CLAUDE_PROJECT_DIR" && pwd -P) || exit 1
trusted() {
    IFS=:
    set -f
    for entry in $PATH; do
        case $entry/ in /*) ;; *) continue ;; esac
        cd -P "$entry" 2>/dev/null || continue
        real=$PWD
        case $entry/ in "$CLAUDE_PROJECT_DIR"/*) continue ;; esac
        case $real/ in "$workspace"/*) continue ;; esac
        printf '%s:' "$real"
    done
}
PATH=$(trusted)
PATH=${PATH%:}

here=$(cd "$(dirname "$0")" && pwd)
# uv and Python read configuration from the working directory, which must therefore not be the workspace.
cd / || exit 1

# Prints "new" or "old" and the path of this Python, or nothing if it is older than 3.8.
ask='import os, sys; v = sys.version_info; v >= (3, 8) and print("new" if v >= (3, 11) else "old", os.path.realpath(sys.executable))'
new='' old=''
asked() {
    said=$("$1" -I -S -c "$ask" </dev/null 2>/dev/null) || return 1
    case $said in
    new\ *) new=${said#new } ;;
    old\ *) [ -n "$old" ] || old=${said#old } ;;
    esac
    [ -n "$new" ]
}
find_python() {
    # Tries the environments' Pythons first: they are new enough, and a search may take longer than a client waits.
    data=${XDG_DATA_HOME:-}
    case $data in /*) ;; *) data=${HOME:-}/.local/share ;; esac
    case $data/ in "$CLAUDE_PROJECT_DIR"/* | "$workspace"/*) ;; *)
        for link in "$data"/ipybox/environments/*/bin/python; do
            [ -x "$link" ] && asked "$link" && return
        done
        ;;
    esac
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        command -v "$name" >/dev/null && asked "$name" && return
    done
    find_uv && found=$(uv python find --no-project '>=3.11' </dev/null 2>/dev/null) && asked "$found"
}

# Adds the directory where the old Python's `pip install --user`, or uv's installer, puts uv: PATH often lacks it.
uv=uv # the command to suggest
find_uv() {
    command -v uv >/dev/null && return
    scripts=''
    [ -z "$old" ] || scripts=$("$old" -I -S -c 'import site; print(site.getuserbase() + "/bin")' </dev/null 2>/dev/null)
    for entry in "$scripts" "${HOME:-}/.local/bin"; do
        case $entry in /*) ;; *) continue ;; esac
        real=$(cd -P "$entry" 2>/dev/null && pwd -P) || continue
        case $entry/ in "$CLAUDE_PROJECT_DIR"/*) continue ;; esac
        case $real/ in "$workspace"/*) continue ;; esac
        [ -x "$real/uv" ] && PATH=$PATH:$real && uv=$real/uv && return
    done
    return 1
}

# What is wrong, how to fix it, and what to do then.
problem() {
    if command -v uv >/dev/null; then
        echo "ipybox can't run code here: there is no Python 3.11 or later, and uv could not download one."
    else
        echo "ipybox can't run code here: there is neither Python 3.11 or later nor uv."
    fi
}
remedy() {
    if command -v uv >/dev/null; then
        echo "Run \`$uv python install 3.13\`, which says what is wrong, or install Python 3.11 or later."
    elif [ -n "$old" ] && "$old" -I -m pip --version >/dev/null 2>&1; then
        echo "Run \`$old -m pip install --user uv\`, or install Python 3.11 or later."
    else
        for command in 'apt-get install python3 python3-venv' 'dnf install python3' 'pacman -S python' \
            'zypper install python3' 'apk add python3' 'brew install python'; do
            command -v "${command%% *}" >/dev/null || continue
            case $command in brew*) as= ;; *) as=' as root' ;; esac
            echo "Run \`$command\`$as, or install uv."
            return
        done
        echo "Install Python 3.11 or later, or uv, from the system's packages."
    fi
}

next='If it is not found then, restart Claude Code, whose PATH is that of its start.'

# Escapes a text for a JSON string: these texts contain no other characters that need it.
quoted() {
    printf '%s' "$*" | sed 's/\\/\\\\/g; s/"/\\"/g'
}

# Prints the hook's output: a text for the person, and one for the model.
notice() {
    printf '{"systemMessage": "%s", "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "%s"}}\n' \
        "$(quoted "$1")" "$(quoted "Tell the user: $2")"
}

# Has uv download a Python, in a process that survives the client.
download_python() {
    command -v uv >/dev/null || return 0
    (
        trap '' HUP INT TERM
        exec uv python install 3.13 </dev/null >&2
    ) &
    download=$!
}
downloaded_python() {
    [ -z "$download" ] || wait "$download"
    download=''
    find_python
}

# Answers requests, one per line, until a call finds that Python is available. sh reads no further than the line, so
# relay.py receives what follows.
answer() {
    field() { sed -n "s/^\"$1\": \(.*[^,]\),*\$/\1/p" "$here/server.json"; }
    while IFS= read -r line; do
        # Clients write the id before the parameters, or at the end.
        case $line in
        '{"jsonrpc":"2.0","id":'* | '{"jsonrpc": "2.0", "id": '*) id=${line#*\"id\":} ;;
        *\"id\":*) id=${line##*\"id\":} ;;
        *) continue ;;
        esac
        id=$(printf '%s' "$id" | sed -n 's/^ *\([0-9][0-9]*\|"[^"\\]*"\).*/\1/p')
        [ -n "$id" ] || continue
        case $line in
        *\"method\":*\"initialize\"*)
            hello=$line
            version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion": *"\([0-9-]*\)".*/\1/p')
            result=$(field initialize)
            result="{\"protocolVersion\": \"$version\", ${result#?}"
            ;;
        *\"method\":*\"tools/list\"*) result=$(field tools) ;;
        *\"method\":*\"tools/call\"*)
            if downloaded_python; then
                { printf '%s\n' "$hello" '{"jsonrpc":"2.0","method":"notifications/initialized"}' "$line"; exec cat; } |
                    "$new" -I -S -B "$here/relay.py" --greeted "$new" -I -S -B "$here/launch.py" start "$@"
                exit
            fi
            text=$(quoted "$(problem) $(remedy) Then call ipybox again. $next")
            result="{\"content\":[{\"type\":\"text\",\"text\":\"$text\"}],\"isError\":true}"
            ;;
        *\"method\":*\"ping\"*) result='{}' ;;
        *)
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"
            continue
            ;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
    done
}

action=${1-}
shift
download='' hello=''
find_python || true
case $action in
serve)
    [ -n "$new" ] && exec "$new" -I -S -B "$here/relay.py" "$new" -I -S -B "$here/launch.py" start "$@"
    [ -n "$old" ] && exec "$old" -I -S -B "$here/relay.py" sh "$here/launch.sh" start "$@"
    download_python
    answer "$@"
    ;;
start)
    if [ -z "$new" ]; then
        download_python
        downloaded_python || true
    fi
    [ -n "$new" ] && exec "$new" -I -S -B "$here/launch.py" start "$@"
    echo "$(problem) $(remedy) Then call ipybox again. $next" >&2
    exit 1
    ;;
notice)
    [ -n "$new" ] && exec "$new" -I -S -B "$here/launch.py" notice "$@"
    if command -v uv >/dev/null; then
        text='ipybox has no Python 3.11 or later here yet: uv downloads one now, and calls wait for it.'
        notice "$text" "$text"
    else
        text="$(problem) $(remedy)"
        notice "$text Then ask again. $next" "$text Then call ipybox again. $next"
    fi
    ;;
esac
