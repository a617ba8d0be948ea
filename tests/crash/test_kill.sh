#!/bin/sh
# The real program is killed with SIGKILL at each named point around its commits and renames, and stopped by signals. What the
# next run finds must be whole, and the output in the end that of an undisturbed run, times masked. Random moments are
# test_campaign's, every single system call is tests/fault/system.c's.
nightshift=${NIGHTSHIFT:-./nightshift}
build=${BUILD:-build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

i=0
while [ $i -lt 24 ]; do
    echo "{\"id\":\"t$i\",\"prompt\":\"What is $i * 7?\",\"max_tokens\":30,\"temperature\":$((i % 2))}"
    i=$((i + 1))
done >"$tmp/jobs.jsonl"
echo '{"id":"p","image":"circles.png","prompt":"Caption this image.","max_tokens":60}' >>"$tmp/jobs.jsonl"
echo '{"id":"p2","image":"circles.png","prompt":"Describe this image.","max_tokens":9}' >>"$tmp/jobs.jsonl"
echo 'no JSON' >>"$tmp/jobs.jsonl"

# Becomes the program; for subshells.
night() {
    exec "$nightshift" run "$tmp/jobs.jsonl" -m examples/demo-model -o "$1" --image-root examples/images --quiet \
        --max-sequences 3 </dev/null >"$tmp/log" 2>&1
}

mask() {
    sed -E 's/"created":[0-9]+/"created":0/; s/"(prefill_s|decode_s)":[0-9.]+/"\1":0/g' "$1"
}

ok() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    echo "FAILED $*"
    cat "$tmp/log"
}

# The queue is whole after the crash, and the next run ends as the undisturbed one did.
check() {
    if [ -e "$tmp/out.jsonl.db" ] && ! "$nightshift" verify --db "$tmp/out.jsonl.db" >"$tmp/log" 2>&1; then
        fail "$1: not whole"
        return
    fi
    (night "$tmp/out.jsonl")
    rc=$?
    if [ $rc -ne 1 ]; then
        fail "$1: the next run ends with $rc"
    elif ! mask "$tmp/out.jsonl" | cmp -s - "$tmp/expected"; then
        mask "$tmp/out.jsonl" | diff - "$tmp/expected" >"$tmp/log"
        fail "$1: another output"
    elif ! "$nightshift" verify --db "$tmp/out.jsonl.db" "$tmp/out.jsonl" >"$tmp/log" 2>&1; then
        fail "$1: not whole in the end"
    elif [ -e "$tmp/out.jsonl.db.images" ]; then
        fail "$1: pictures are left over"
    elif [ -n "$(find "$tmp" -name '*.tmp*')" ]; then
        fail "$1: an unfinished output is left over"
    else
        ok
    fi
}

# How many answers the queue has.
answers() {
    n=$("$nightshift" status --json --db "$tmp/out.jsonl.db" 2>/dev/null | sed -n 's/.*"retry_wait":0,"done":\([0-9]*\).*/\1/p')
    echo "${n:-0}"
}

# Starts a run, waits for its first answers, sends it a signal; leaves the exit code in rc.
signalled() {
    rm -rf "$tmp"/out*
    (night "$tmp/out.jsonl") &
    pid=$!
    tries=0
    while [ "$(answers)" -lt 2 ] && [ $tries -lt 400 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -s "$1" $pid
    wait $pid
    rc=$?
}

(night "$tmp/plain.jsonl")
rc=$?
mask "$tmp/plain.jsonl" >"$tmp/expected"
if [ $rc -eq 1 ] && [ "$(grep -c '"status_code":200' "$tmp/expected")" -eq 26 ]; then ok; else fail "the first run: $rc"; fi

for point in schema:commit:1 schema:done:1 input:commit:1 input:done:1 import:commit:1 import:done:1 settings:commit:1 \
    settings:done:1 speeds:commit:1 speeds:done:1 begin:commit:1 begin:done:1 release:commit:1 release:done:1 claim:commit:1 \
    claim:done:1 result:commit:1 result:done:1 result:commit:9 result:done:25 \
    counts:commit:1 counts:done:1 release:commit:2 release:done:2 kinds:commit:1 kinds:done:1 speeds:commit:2 \
    speeds:done:2 counts:commit:2 counts:done:2 export:commit:1 export:done:1; do
    rm -rf "$tmp"/out*
    (
        NIGHTSHIFT_CRASH_AT=$point
        export NIGHTSHIFT_CRASH_AT
        night "$tmp/out.jsonl"
    ) 2>/dev/null
    rc=$?
    if [ $rc -eq 137 ]; then check "$point"; else fail "$point: exit $rc"; fi
done

# Stopped, it says so and has kept the tokens of unfinished jobs; killed while it keeps them, it has lost nothing else.
for signal in INT:130 TERM:143; do
    signalled "${signal%:*}"
    if [ $rc -eq "${signal#*:}" ]; then check "SIG${signal%:*}"; else fail "SIG${signal%:*}: exit $rc"; fi
done
for point in checkpoint:commit:1 checkpoint:done:1; do
    NIGHTSHIFT_CRASH_AT=$point
    export NIGHTSHIFT_CRASH_AT
    signalled TERM 2>/dev/null
    unset NIGHTSHIFT_CRASH_AT
    if [ $rc -eq 137 ]; then check "$point"; else fail "$point: exit $rc"; fi
done

# faulty WORDS: a run whose system calls do what they say (tests/lib/faulty); what it did with them is in $tmp/calls.
faulty() {
    rm -rf "$tmp"/out* "$tmp/calls"
    (
        nightshift=$build/faulty FAULTY="$1 log=$tmp/calls"
        export FAULTY
        night "$tmp/out.jsonl"
    )
    rc=$?
}

# Signalled halfway, and again at the next sync of the queue, while it still keeps what is unfinished: it ends there, without
# an output. Signalled once at the same place it writes one.
faulty "sync path=out.jsonl.db n=0 count"
half=$(($(sed -n 's/ calls.*//p' "$tmp/calls") / 2))
for signal in 2:130 15:143 10:143; do
    at="sync path=out.jsonl.db n=$half signal=${signal%:*}"
    faulty "$at"
    if [ $rc -eq "${signal#*:}" ] && [ -e "$tmp/out.jsonl" ]; then check "once: $at"; else fail "once: $at: exit $rc"; fi
    faulty "$at on"
    if [ $rc -eq "${signal#*:}" ] && [ "$(wc -l <"$tmp/calls")" -eq 2 ] && [ ! -e "$tmp/out.jsonl" ]; then
        check "twice: $at"
    else
        fail "twice: $at: exit $rc, $(wc -l <"$tmp/calls") signals"
    fi
done

# The commands that change a finished queue: killed before the commit they changed nothing, after it everything.
crash() {
    (
        NIGHTSHIFT_CRASH_AT=$1
        shift
        export NIGHTSHIFT_CRASH_AT
        exec "$nightshift" "$@" --db "$tmp/out.jsonl.db" >"$tmp/log" 2>&1
    ) 2>/dev/null
    rc=$?
    if [ $rc -ne 137 ]; then
        fail "$*: exit $rc"
    elif ! "$nightshift" verify --db "$tmp/out.jsonl.db" >"$tmp/log" 2>&1; then
        fail "$*: not whole"
    fi
    "$nightshift" status --json --db "$tmp/out.jsonl.db" >"$tmp/log"
}

expect() {
    if grep -q "$2" "$tmp/log"; then ok; else fail "$1: without $2"; fi
}

echo '{"id":"late","prompt":"x","max_tokens":3}' >"$tmp/late.jsonl"
"$nightshift" add --db "$tmp/out.jsonl.db" "$tmp/late.jsonl" >"$tmp/log" 2>&1
crash cancel:commit:1 cancel late
expect 'before cancel' '"pending":1,'
crash cancel:done:1 cancel late
expect 'after cancel' '"pending":0,.*"cancelled":1'
crash retry:commit:1 retry late
expect 'before retry' '"cancelled":1'
crash retry:done:1 retry late
expect 'after retry' '"pending":1,.*"cancelled":0'
echo '{"id":"later","prompt":"x","max_tokens":3}' >>"$tmp/late.jsonl"
for point in changed:commit:1 changed:done:1 import:commit:1; do
    crash $point add --on-changed-input rerun "$tmp/late.jsonl"
    expect $point '"pending":[01],'
done
"$nightshift" add --db "$tmp/out.jsonl.db" --on-changed-input rerun "$tmp/late.jsonl" >"$tmp/log" 2>&1
"$nightshift" status --json --db "$tmp/out.jsonl.db" >"$tmp/log"
expect 'the changed input' '"pending":2,'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
