# Sourced: runs tests, and once more what has failed, as two halves at once overload the machine at times.

# Calls COMMAND with the arguments, and a second time with those of pytest that select what has failed. What passes then
# is printed as `FLAKY <test>` and added to the file $FLAKY_TESTS, if that is set.
# Usage: twice CACHE COMMAND [ARGUMENT]...    where CACHE is pytest's cache directory
twice() {
    local last_failed="$1/v/cache/lastfailed" failed
    shift
    rm -f "$last_failed"
    "$@" && return
    failed=$(sed -n 's/^ *"\(.*\)": true,\{0,1\}$/FLAKY \1/p' "$last_failed" 2>/dev/null)
    echo "Once more, what failed:"
    "$@" --last-failed --last-failed-no-failures=none || return
    echo "$failed" | tee -a "${FLAKY_TESTS:-/dev/null}"
}
