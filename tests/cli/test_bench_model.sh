#!/bin/sh
# The made-up models of the benches: the same options give the same bytes, and the program runs them, pictures too.
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bench_model=$BUILD/tests/bench/bench_model

# case NAME COMMAND...: passes when the command does; its output is shown when it fails
case_() {
    name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name"
        cat "$tmp/log"
    fi
}

generates() { "$bench_model" "$tmp/model" --tiny --jobs=3 --topics=2 && [ -s "$tmp/model/bench_model.txt" ]; }
case_ "a tiny model" generates

# A second call with the same options leaves everything, one with others is refused.
does_nothing() { touch "$tmp/mark" && generates && [ -z "$(find "$tmp/model" -newer "$tmp/mark" -type f)" ]; }
case_ "the same again does nothing" does_nothing
refuses() { ! "$bench_model" "$tmp/model" --tiny --jobs=3 --topics=2 --seed=2; }
case_ "other options, same folder" refuses
rejects() { ! "$bench_model" "$tmp/other" --tiny --top-k=17 && ! "$bench_model" "$tmp/other" --layers=0 && [ ! -e "$tmp/other" ]; }
case_ "impossible sizes" rejects

same_bytes() { "$bench_model" "$tmp/again" --tiny --jobs=3 --topics=2 && diff -r "$tmp/model" "$tmp/again"; }
case_ "the same bytes" same_bytes
other_bytes() { "$bench_model" "$tmp/seed" --tiny --jobs=3 --topics=2 --seed=2 && ! cmp -s "$tmp/model/jobs.jsonl" "$tmp/seed/jobs.jsonl" &&
    ! cmp -s "$tmp/model/model-00002-of-000004.safetensors" "$tmp/seed/model-00002-of-000004.safetensors"; }
case_ "another seed" other_bytes

runs() {
    cp "$tmp/model/jobs.jsonl" "$tmp/jobs.jsonl"
    echo '{"id": "picture", "image": "japan.png", "prompt": "What?", "max_tokens": 5}' >>"$tmp/jobs.jsonl"
    "$NIGHTSHIFT" run -i "$tmp/jobs.jsonl" -m "$tmp/model" -o "$tmp/out.jsonl" --image-root examples/images --quiet &&
        cat "$tmp/out.jsonl" && [ "$(grep -c '"status_code":200' "$tmp/out.jsonl")" -eq 4 ]
}
case_ "it runs" runs

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
