# Sourced by tests of the command line, from the root: a folder $tmp that goes away, the demo model, and two ways to judge.
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=examples/demo-model
nightshift=${NIGHTSHIFT:-./nightshift}

# is NAME COMMAND...: the command succeeds.
is() {
    label=$1
    shift
    if "$@" >/dev/null 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $label"
        cat "$tmp/out" "$tmp/err" 2>/dev/null | tail -n 30 | sed 's/^/    /'
    fi
}

# call ARGUMENT...: the program; its exit code is $code.
call() {
    "$nightshift" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
}

# expect NAME EXIT TEXT COMMAND...: exit code, and TEXT in what it says, if not "".
expect() {
    label=$1 want=$2 text=$3
    shift 3
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    if [ $rc -eq "$want" ] && { [ -z "$text" ] || grep -qe "$text" "$tmp/out" "$tmp/err"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $label: exit $rc, not $want, or without \"$text\""
        cat "$tmp/out" "$tmp/err"
    fi
}
