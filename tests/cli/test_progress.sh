#!/bin/sh
# Progress as a person at a terminal sees it, as a log shows it, and as a program reads it; the summary at the end.
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
model=examples/demo-model

ok() {
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $1" && tail -c 2000 "$tmp/log" | cat -v; fi
}
# has NAME PATTERN: the log matches.
has() {
    grep -qe "$2" "$tmp/log"
    ok "$1" $?
}

i=0
while [ $i -lt 12 ]; do echo "{\"id\":\"a$i\",\"prompt\":\"What is $i + 3?\",\"max_tokens\":30}" && i=$((i + 1)); done >"$tmp/jobs.jsonl"
echo '{"id":"cut","prompt":"x","image":"cut.png"}' >>"$tmp/jobs.jsonl"
head -c 2000 examples/images/circles.png >"$tmp/cut.png"
"$nightshift" add "$tmp/jobs.jsonl" --db "$tmp/q.db" -q
work() {
    cp "$tmp/q.db" "$tmp/$1.db"
    shift
    "$nightshift" work -m $model --max-sequences 4 "$@" >"$tmp/log" 2>&1 </dev/null
}

if command -v script >/dev/null; then
    cp "$tmp/q.db" "$tmp/tty.db"
    script -qec "stty cols 70; exec '$nightshift' work -m $model --db '$tmp/tty.db' --max-sequences 2" /dev/null </dev/null >"$tmp/log" 2>&1
    escape=$(printf '\033')
    has "a terminal gets one line that is written over" "^.*$escape\[K[0-9]*/13 done.*$escape\[K[0-9]*/13 done"
    has "a failure stands above it on a line of its own" "${escape}\[Kcut: failed: image_truncated: "
    tr '\r' '\n' <"$tmp/log" | sed "s/$escape\[K//" | grep '/13 done' | awk 'length > 69 { exit 1 }'
    ok "and is never wider than the terminal" $?
    [ "$(sed "s/.*$escape\[K//" "$tmp/log" | grep -c '/13 done')" -eq 0 ]
    ok "and is gone at the end" $?
else
    echo "skipped: no script(1), no terminal" && skipped=1
fi

work plain --db "$tmp/plain.db" --progress plain --eta
has "a log gets a plain line at the start" "^0/13 done, 0 failed, 0 running, 0.0 tok/s, 0 B read, ETA ?$"
has "and each failure" "^cut: failed: image_truncated: "
[ "$(grep -c '/13 done' "$tmp/log")" -le 2 ] && ! grep -q "$(printf '[\033\r]')" "$tmp/log"
ok "and nothing a terminal would obey" $?
has "the summary counts, by code" "^13 jobs: 12 done, 1 failed (image_truncated 1), 0 left$"
has "tells the rates" "^[0-9]* tokens in .* (.* a second), .* prompt rows.* sweeps, .* read; peak memory"
has "and where the time went" "^of the time [0-9]* % computing, [0-9]* % waiting for experts"

work json --db "$tmp/json.db" --progress json
grep '^{' "$tmp/log" | grep -vqE '^\{"event":"(started|progress|job|retry|saved|ended)","seconds":[0-9.]+,"total":13,"done":[0-9]+,"failed":[01],.*"eta_s":(null|[0-9]+)[,}].*$'
[ $? -eq 1 ]
ok "a program gets an object a line" $?
[ "$(grep -c '"event":"job"' "$tmp/log")" -eq 13 ] && grep -q '"event":"started"' "$tmp/log" && [ "$(grep -c '"event":"ended"' "$tmp/log")" -eq 1 ]
ok "one for each job, one at each end" $?
has "with the code of a failure" '"custom_id":"cut","code":"image_truncated","message":"'

work quiet --db "$tmp/quiet.db" -q
[ ! -s "$tmp/log" ]
ok "quiet: nothing" $?

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
