# What test_neon.sh and test_emulated.sh share: object NAME SOURCE FLAGS..., run_tests FLAGS..., skip WHY.
# CC compiles, EMULATOR (may be empty) runs what was compiled.
CC=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

skip() {
    echo "$1"
    exit 77
}

object() {
    out=$dir/$1
    shift
    $CC -std=gnu11 -D_GNU_SOURCE -O1 -ffp-contract=off -I. -c -o "$out" "$@" || exit 1
}

run_tests() {
    passed=0
    failed=0
    for name in kern kern_math; do
        $CC -std=gnu11 -D_GNU_SOURCE -O1 -ffp-contract=off -I. "$@" -o "$dir/$name" tests/unit/$name.c \
            tests/lib/test.c src/err.c "$dir"/*.o -lm || exit 1
        $EMULATOR "$dir/$name" >"$dir/out" 2>&1
        rc=$?
        counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, 0 skipped$/\1 \2/p' "$dir/out")
        if [ $rc -ne 0 ] || [ -z "$counts" ]; then
            cat "$dir/out"
            failed=$((failed + 1))
        else
            passed=$((passed + ${counts% *}))
        fi
    done
    echo "$passed passed, $failed failed, 0 skipped"
    [ $failed -eq 0 ]
}
