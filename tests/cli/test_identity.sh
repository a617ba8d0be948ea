#!/bin/sh
# A job's result depends on the job alone: 24 mixed jobs (pictures and text, greedy and sampled, one in JSON) give the same bytes
# whatever runs together, whatever is cached, however prompts are cut, in whatever order, with whatever drafts, and killed
# five times in between. Of the combinations of sequences, cache, threads and chunk each value meets each other one, order
# and drafts take turns; FULL=1 runs them all.
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
images=$PWD/tests/golden/demo

awk 'NR <= 24 {
    if (NR % 3 == 0) sub(/\{/, "{\"temperature\": 0.9, \"top_p\": 0.95, \"seed\": " NR ", ")
    if (NR % 12 == 7) sub(/"max_tokens": 80/, "\"max_tokens\": 500")
    if (NR % 12 == 7) sub(/\{/, "{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [\"x\", \"yes\"]}}, \"required\": [\"a\"], \"additionalProperties\": false}}}, ")
    if (NR % 8 == 5) sub(/\{/, "{\"stop\": [\" on\", \"e\"], ")
    print
}' tests/golden/demo/jobs.jsonl >"$tmp/jobs.jsonl"

# What may differ: times, and how many attempts it took.
mask() {
    sed -E 's/"created":[0-9]+/"created":0/; s/"(prefill_s|decode_s)":[0-9.e+-]+/"\1":0/g
            s/"attempt":[0-9]+/"attempt":0/; s/("(id|request_id)":"[^"]*)-[0-9]+"/\1"/g' "$1"
}

run() {
    out=$1
    shift
    "$nightshift" run -i "$tmp/jobs.jsonl" -m examples/demo-model -o "$out" --image-root "$images" --quiet "$@" \
        </dev/null >"$tmp/log" 2>&1
}

check() {
    name=$1 rc=$2 out=$3
    if [ "$rc" -eq 0 ] && mask "$out" >"$tmp/masked" && cmp -s "$tmp/masked" "$tmp/expected"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name (exit $rc)"
        cat "$tmp/log"
        diff "$tmp/masked" "$tmp/expected" | head -n 4 | cut -c 1-400
    fi
}

run "$tmp/first.jsonl" --max-sequences 24 --threads 2 || { cat "$tmp/log"; echo "the first run failed"; }
mask "$tmp/first.jsonl" >"$tmp/expected"
[ "$(wc -l <"$tmp/expected")" -eq 24 ] && [ "$(grep -c '"status_code":200' "$tmp/expected")" -eq 24 ] ||
    { failed=$((failed + 1)); echo "the first run did not finish 24 jobs"; }

settings() {
    if [ -n "$FULL" ]; then
        for s in 1 3 24; do for c in 10% 100%; do for t in 1 2; do for p in 1 7 64; do
            for o in input auto; do for d in off auto 16; do echo "$s $c $t $p $o $d"; done; done
        done; done; done; done
    else
        printf '%s\n' "1 10% 1 64 auto 16" "1 100% 2 7 input off" "3 10% 2 1 auto off" "3 100% 1 64 input 16" \
            "3 10% 1 7 auto auto" "24 10% 2 7 input auto" "24 100% 1 1 auto off" "24 10% 2 64 auto 16" "1 100% 2 1 input auto"
    fi
}
settings >"$tmp/settings"
while read -r s c t p o d; do
    run "$tmp/out.jsonl" --db "$tmp/$s.$c.$t.$p.$o.$d.db" --max-sequences "$s" --cache-experts "$c" --threads "$t" \
        --prefill-rows "$p" --order "$o" --draft "$d"
    check "$s at a time, $c cached, $t threads, chunks of $p, order $o, drafts $d" $? "$tmp/out.jsonl"
done <"$tmp/settings"

# Order and drafts change what is done when, never what comes out.
for options in "--order input --draft off" "--order input --draft 5" "--order auto --draft auto --prefill-rows 7 --cache-experts 10%"; do
    # shellcheck disable=SC2086 # options
    run "$tmp/out.jsonl" --db "$tmp/order$passed.db" --max-sequences 5 $options
    check "$options" $? "$tmp/out.jsonl"
done

# Killed five times: each life sets the queue out again where the last one left it, with another order and other drafts.
life() {
    case $1 in
        0.05) echo "--order input --draft off" ;;
        0.1) echo "--order auto --draft 16" ;;
        0.2) echo "--order input --draft 5" ;;
        *) echo "--order auto --draft auto" ;;
    esac
}
for settings in "--max-sequences 3 --prefill-rows 7" "--max-sequences 24 --cache-experts 10%"; do
    kills=0
    rm -f "$tmp"/killed*
    for wait in 0.05 0.2 0.1 0.3 0.15; do
        # shellcheck disable=SC2046,SC2086 # options
        "$nightshift" run -i "$tmp/jobs.jsonl" -m examples/demo-model -o "$tmp/killed.jsonl" --image-root "$images" --quiet \
            $settings $(life $wait) </dev/null >/dev/null 2>&1 &
        pid=$!
        sleep "$wait"
        kill -9 $pid 2>/dev/null && kills=$((kills + 1))
        wait $pid 2>/dev/null
    done
    # shellcheck disable=SC2086
    run "$tmp/killed.jsonl" $settings
    check "killed $kills times with $settings" $? "$tmp/killed.jsonl"
done

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
