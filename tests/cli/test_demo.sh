#!/bin/sh
# The demo model answers its whole test set as the reference implementation does (tests/golden/demo, made by another
# program), and the demo of examples/ gets all of its jobs right.
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
golden=tests/golden/demo

# agrees NAME PERCENT OPTION...: a run over the test set with these options gives the expected text for PERCENT of the jobs
agrees() {
    name=$1 percent=$2
    shift 2
    if "$NIGHTSHIFT" run -i $golden/jobs.jsonl -m examples/demo-model -o "$tmp/$name.jsonl" --quiet "$@" >"$tmp/log" 2>&1 &&
        "$BUILD/tests/cli/compare_answers" $golden/expected.jsonl "$tmp/$name.jsonl" "$percent" >>"$tmp/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name"
        cat "$tmp/log"
    fi
}

agrees f32 99
agrees bf16 97 --activations bf16

if sh examples/demo.sh >"$tmp/log" 2>&1; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED demo.sh"
    cat "$tmp/log"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
