#!/bin/sh
# Runs every test program and script: run.sh BUILD_DIR [NAME...]. A program ends with "N passed, N failed, N skipped",
# exit 77 is a skip. The last line adds them up; failed or empty runs exit 1.
build=$1
shift
passed=0 failed=0 skipped=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

run_one() {
    name=$1
    shift
    "$@" >"$out" 2>&1
    rc=$?
    set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$out" | tail -n 1)
    if [ $rc -eq 77 ]; then
        skipped=$((skipped + 1))
        echo "$name: skipped: $(tail -n 1 "$out")"
    elif [ -z "$1" ]; then
        failed=$((failed + 1))
        cat "$out"
        echo "$name: no result line, exit $rc"
    else
        passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
        [ "$3" -eq 0 ] || grep '^skipped: ' "$out" | sed "s|^|$name: |"
        if [ $rc -ne 0 ] || [ "$2" -ne 0 ]; then
            [ "$2" -ne 0 ] || failed=$((failed + 1))
            cat "$out"
            echo "$name: exit $rc"
        else
            echo "$name: $1 passed"
        fi
    fi
}

wanted() {
    [ -n "$ALL" ] && return 0
    for w in $NAMES; do [ "$w" = "$1" ] && return 0; done
    return 1
}
NAMES="$*"
[ -n "$NAMES" ] && ALL= || ALL=1

for group in unit golden fault fuzz; do
    for src in tests/$group/*.c; do
        [ -e "$src" ] || continue
        name=$(basename "$src" .c)
        wanted "$name" && run_one "$group/$name" "$build/tests/$group/$name"
    done
done
for group in cli crash; do
    for src in tests/$group/test_*.sh; do
        [ -e "$src" ] || continue
        name=$(basename "$src" .sh)
        wanted "$name" && run_one "$group/$name" env BUILD="$build" NIGHTSHIFT="$build/nightshift" sh "$src"
    done
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
