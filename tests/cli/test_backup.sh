#!/bin/sh
# backup: a copy taken while a run writes is whole, goes on by itself, and ends with the same answers.
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
model=examples/demo-model

ok() {
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $1" && cat "$tmp/log"; fi
}

for i in $(seq 24); do echo "{\"id\":\"a$i\",\"prompt\":\"What is $i + 3?\",\"max_tokens\":20}"; done >"$tmp/jobs.jsonl"
run() {
    "$nightshift" run "$tmp/jobs.jsonl" -m $model -o "$tmp/$1.jsonl" --max-sequences 2 -q >"$tmp/log" 2>&1
}
mask() {
    sed -E 's/"created":[0-9]+/"created":0/; s/"(prefill_s|decode_s)":[0-9.]+/"\1":0/g' "$1"
}

run out &
pid=$!
n=0 good=0
while kill -0 $pid 2>/dev/null && [ $n -lt 40 ]; do
    sleep 0.05
    [ -e "$tmp/out.jsonl.db" ] || continue
    "$nightshift" backup --db "$tmp/out.jsonl.db" -o "$tmp/copy$n.jsonl.db" -q >"$tmp/log" 2>&1 &&
        "$nightshift" verify --db "$tmp/copy$n.jsonl.db" >>"$tmp/log" 2>&1 && good=$((good + 1))
    n=$((n + 1))
done
wait $pid
ok "the run ends as if nothing had been copied" $?
[ $n -gt 0 ] && [ $good -eq $n ]
ok "each of $n copies is whole, $good are" $?
[ "$n" -gt 0 ] && run "copy$((n / 2))"
ok "a copy goes on" $?
mask "$tmp/copy$((n / 2)).jsonl" >"$tmp/copied"
mask "$tmp/out.jsonl" | cmp -s - "$tmp/copied"
ok "to the same answers" $?

"$nightshift" backup --db "$tmp/out.jsonl.db" -o "$tmp/copy0.jsonl.db" >"$tmp/log" 2>&1
[ $? -eq 2 ] && grep -q "copy0.jsonl.db is there already" "$tmp/log"
ok "nothing is replaced" $?
"$nightshift" backup --db "$tmp/none.db" -o "$tmp/new.db" >"$tmp/log" 2>&1
[ $? -eq 2 ] && [ ! -e "$tmp/new.db" ]
ok "no queue, no copy" $?
"$nightshift" backup --db "$tmp/out.jsonl.db" >"$tmp/log" 2>&1
[ $? -eq 2 ] && grep -q "needs --output" "$tmp/log"
ok "where to is asked for" $?
[ "$(find "$tmp" -name '*.tmp*' -o -name '*-journal' -size +0 | wc -l)" -eq 0 ]
ok "nothing is left lying about" $?

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
