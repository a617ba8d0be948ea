#!/bin/sh
# Runs every test program and script, as many at a time as there are cores, two at least: run.sh BUILD_DIR [NAME...]. A
# program ends with "N passed, N failed, N skipped", exit 77 is a skip. What a test says is printed when it has ended. The
# last line adds all up; failed or empty runs exit 1.
build=$1
shift

# One test, "group/name": its lines into $RESULTS/NAME.said, passed, failed and skipped into $RESULTS/NAME.sum.
run_one() {
    said=$RESULTS/$(echo "$1" | tr / .)
    case $1 in
    cli/* | crash/*) env BUILD="$build" NIGHTSHIFT="$build/nightshift" sh "tests/$1.sh" ;;
    *) "$build/tests/$1" ;;
    esac >"$said.out" 2>&1
    rc=$?
    name=$1
    set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$said.out" | tail -n 1)
    if [ $rc -eq 77 ]; then
        set -- 0 0 1
        echo "$name: skipped: $(tail -n 1 "$said.out")"
    elif [ -z "$1" ]; then
        set -- 0 1 0
        cat "$said.out"
        echo "$name: no result line, exit $rc"
    else
        [ "$3" -eq 0 ] || grep '^skipped: ' "$said.out" | sed "s|^|$name: |"
        if [ $rc -ne 0 ] || [ "$2" -ne 0 ]; then
            [ "$2" -ne 0 ] || set -- "$1" 1 "$3"
            cat "$said.out"
            echo "$name: exit $rc"
        else
            echo "$name: $1 passed"
        fi
    fi >"$said.said"
    cat "$said.said" 2>/dev/null
    echo "$1 $2 $3" >"$said.sum"
}

if [ -n "$RUN_ONE" ]; then
    run_one "$1"
    exit 0
fi

# The long ones first.
all() {
    for s in tests/crash/test_*.sh tests/cli/test_*.sh; do echo "${s%.sh}"; done
    for s in tests/fault/*.c tests/golden/*.c tests/unit/*.c tests/fuzz/*.c; do echo "${s%.c}"; done
}

RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS"' EXIT
cores=$(nproc)
[ "$cores" -ge 2 ] || cores=2
export RESULTS
all | sed 's|^tests/||' | while read -r t; do
    [ $# -eq 0 ] && echo "$t" && continue
    for w in "$@"; do [ "$w" != "${t#*/}" ] || echo "$t"; done
done | RUN_ONE=1 xargs -r -n 1 -P "$cores" sh "$0" "$build"

cat "$RESULTS"/*.sum 2>/dev/null | {
    passed=0 failed=0 skipped=0
    while read -r p f s; do passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)); done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
