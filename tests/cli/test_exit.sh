#!/bin/sh
# Each exit code in each case that leads to it; test_run.sh and test_check.sh have the plainest ones.
. tests/lib/cli.sh
build=${BUILD:-build/release}

n() {
    "$nightshift" "$@"
}
run() {
    n run -m $model "$@"
}

echo '{"id":"a","prompt":"What is 2 + 3?","max_tokens":20}' >"$tmp/one.jsonl"
for i in 1 2 3 4 5 6; do echo "{\"id\":\"i$i\",\"prompt\":\"x\",\"image\":\"none.png\"}"; done >"$tmp/fail.jsonl"
for i in $(seq 40); do echo "{\"id\":\"l$i\",\"prompt\":\"Count from $i to 99.\",\"max_tokens\":200}"; done >"$tmp/long.jsonl"
: >"$tmp/none.jsonl"
run "$tmp/one.jsonl" -o "$tmp/one.out" -q
db=$tmp/one.out.db

# 0
expect "0: an empty input has nothing to do" 0 "0 jobs" run "$tmp/none.jsonl" -o "$tmp/none.out"
expect "0: work on a finished queue" 0 "0 left" n work -m $model --db "$db"
expect "0: status, also of a queue with failures" 0 "1 jobs" n status --db "$db"
expect "0: errors that are none" 0 "custom_id" n errors --db "$db"

# 1
expect "1: a cancelled job is not done" 1 "1 cancelled" sh -c "'$nightshift' add '$tmp/one.jsonl' --db '$tmp/c.db' -q && '$nightshift' cancel --all --db '$tmp/c.db' -q && '$nightshift' work -m $model --db '$tmp/c.db'"
expect "1: check finds a bad line" 1 "6 image_missing" n check "$tmp/fail.jsonl"
expect "1: all failed" 1 "6 failed (image_missing 6)" run "$tmp/fail.jsonl" -o "$tmp/fail.out"
expect "1: merge of failures" 1 "6 failures" n merge "$tmp/fail.out.db" -o "$tmp/m.out"

# 2
expect "2: an operand where none goes" 2 "unexpected argument" n status x --db "$db"
expect "2: two ids where one goes" 2 "expected one ID" n show a b --db "$db"
expect "2: a job that is not there" 2 "no such job" n show zz --db "$db"
expect "2: nothing to retry under that id" 2 'no job "a"' n retry a --db "$db"
expect "2: retry of what?" 2 "needs ids" n retry --db "$db"
expect "2: a state that is none" 2 "expected pending" n list --db "$db" --state finished
expect "2: a code that is none" 2 'no code "imagemissing"' n errors --db "$db" --code imagemissing
for c in status list errors export verify backup retry cancel work add; do
    expect "2: $c of no queue" 2 "needs --db" n $c $([ $c = add ] && echo "$tmp/one.jsonl")
done
expect "2: too little memory for the model" 2 "needs at least" run "$tmp/one.jsonl" -o "$tmp/ram.out" --ram 8M

# 3
expect "3: check --strict" 3 "6 image_missing" n check "$tmp/fail.jsonl" --strict
expect "3: add --strict" 3 "6 of 6 jobs cannot run" n add "$tmp/fail.jsonl" --db "$tmp/strict.db" --strict
expect "3: an input that changed" 3 "changed since it was imported" sh -c "cp '$tmp/one.jsonl' '$tmp/ch.jsonl'; '$nightshift' add '$tmp/ch.jsonl' --db '$tmp/ch.db' -q; echo '{\"id\":\"b\",\"prompt\":\"x\"}' >>'$tmp/ch.jsonl'; '$nightshift' add '$tmp/ch.jsonl' --db '$tmp/ch.db'"

# 4
expect "4: a folder without a model" 4 "config.json" n info -m "$tmp"
expect "4: a queue of a later version" 4 "queue version 77" sh -c "cp '$db' '$tmp/later.db'; printf 'M' | dd of='$tmp/later.db' bs=1 seek=63 conv=notrunc 2>/dev/null; '$nightshift' status --db '$tmp/later.db'"
expect "4: a queue that is cut off" 4 "cut.db" sh -c "head -c 9000 '$db' >'$tmp/cut.db'; '$nightshift' verify --db '$tmp/cut.db'"
expect "4: verify finds damage" 4 "from line 1 on" sh -c "echo x >'$tmp/other.out'; '$nightshift' verify --db '$db' '$tmp/other.out'"
expect "4: and says it as JSON" 4 '^{"finding":".*","findings":1}$\|^{"findings":1}$' n verify --json --db "$db" "$tmp/other.out"

# 5
expect "5: nowhere to write the results" 5 "cannot create" n export --db "$db" -o "$tmp/no/such/folder.jsonl"
expect "5: nowhere to make the queue" 5 "no/such" n add "$tmp/one.jsonl" --db "$tmp/no/such/q.db"
expect "5: nowhere to copy it" 5 "cannot create" n backup --db "$db" -o "$tmp/no/such/q.db"
[ ! -w /dev/full ] || expect "5: a full standard output" 5 "standard output" sh -c "'$nightshift' list --db '$db' >/dev/full"

# 6: whoever has the queue, in either order
(
    flock 9
    expect "6: run beside run" 6 "being worked" run "$tmp/one.jsonl" -o "$tmp/one.out"
    expect "6: and none that begins anew" 6 "being worked" run "$tmp/one.jsonl" -o "$tmp/one.out" --fresh
    expect "0: which has forgotten nothing" 0 "1 done" n status --db "$db"
    expect "6: work beside run" 6 "being worked" n work -m $model --db "$db"
    echo "$passed $failed" >"$tmp/counts"
) 9>"$db.lock"
read -r passed failed <"$tmp/counts"
(
    flock -s 9
    expect "6: run beside work" 6 "being worked" run "$tmp/one.jsonl" -o "$tmp/one.out"
    expect "0: work beside work" 0 "0 left" n work -m $model --db "$db"
    echo "$passed $failed" >"$tmp/counts"
) 9>"$db.lock"
read -r passed failed <"$tmp/counts"

# 7
expect "7: a deadline that is over" 7 "40 left" run "$tmp/long.jsonl" -o "$tmp/dead.out" --deadline 1s
for i in 1 2 3; do echo x >"$tmp/empty$i.png" && echo "{\"id\":\"e$i\",\"prompt\":\"x\",\"image\":\"empty$i.png\",\"priority\":9}"; done |
    cat - "$tmp/long.jsonl" >"$tmp/halt.jsonl"
n add "$tmp/halt.jsonl" --db "$tmp/halt.db" -q
expect "7: too many failed" 7 "[23] failed (image_un" n work -m $model --db "$tmp/halt.db" --halt fail=2
expect "7: merge misses the other shard" 7 "of the inputs' jobs in no queue" sh -c "'$nightshift' add '$tmp/long.jsonl' --shard 1/2 --db '$tmp/half.db' -q; '$nightshift' merge '$tmp/half.db' -o '$tmp/half.out'"

# 130, 143: stopped by a signal, everything kept
for signal in INT:130 TERM:143 USR1:143; do
    rm -f "$tmp"/sig*
    "$nightshift" run "$tmp/long.jsonl" -m $model -o "$tmp/sig.out" --max-sequences 2 -q >"$tmp/log" 2>&1 </dev/null &
    pid=$!
    tries=0
    while [ ! -e "$tmp/sig.out.db-journal" ] && [ $tries -lt 200 ]; do sleep 0.02 && tries=$((tries + 1)); done
    sleep 0.2
    kill -s "${signal%:*}" $pid
    wait $pid
    rc=$?
    [ $rc -eq "${signal#*:}" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED SIG${signal%:*}: exit $rc" && cat "$tmp/log"; }
    expect "0: and the queue is whole" 0 "whole" n verify --db "$tmp/sig.out.db"
done

# An import that is stopped says so, and the next one has every job.
for command in "add --db $tmp/import1.db" "run -m $model -o $tmp/import2"; do
    expect "130: ${command%% *} in its import" 130 "" env FAULTY="sync path=import n=1 signal=2" "$build/faulty" $command "$tmp/one.jsonl"
    expect "0: and ${command%% *} again" 0 "1 new, 0 known" "$nightshift" $command "$tmp/one.jsonl"
done

: >"$tmp/watch" # there before anybody looks
"$nightshift" status --db "$tmp/halt.db" --watch=0.1 >"$tmp/watch" 2>&1 </dev/null &
pid=$! tries=0
while [ "$(grep -c "43 jobs" "$tmp/watch")" -lt 2 ] && [ $tries -lt 200 ]; do sleep 0.05 && tries=$((tries + 1)); done
kill -s INT $pid
wait $pid
[ $? -eq 130 ] && [ $tries -lt 200 ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED 130: a watch that is ended"; }
expect "0: a watch ends with the queue" 0 "1 jobs" n status --db "$db" --watch=0.1

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
