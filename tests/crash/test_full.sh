#!/bin/sh
# A disk that is really full: a small tmpfs with a file in it that leaves some room. `run` ends with 5 wherever the room
# ends, in the import, the claims, the answers or the export; the queue is whole; and once there is room it goes on to the
# answers of an undisturbed run, times masked. Where nothing may be mounted, the switch in the system calls says "no space".
build=${BUILD:-build/release}
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=${FULL_TMP:-$(mktemp -d)}
disk=$tmp/disk
passed=0 failed=0 skipped=0 stopped=0

mkdir -p "$disk"
if mount -t tmpfs -o size=1m none "$disk" 2>/dev/null; then
    real=1
elif [ -z "$FULL_TMP" ] && unshare -Urm true 2>/dev/null; then
    FULL_TMP=$tmp unshare -Urm sh "$0"
    rc=$?
    rm -rf "$tmp"
    exit $rc
else
    real=
    skipped=1
    echo "skipped: nothing can be mounted here; the switch in the system calls stands in"
fi
trap '[ -z "$real" ] || umount "$disk"; [ -n "$FULL_TMP" ] || rm -rf "$tmp"' EXIT

i=0
while [ $i -lt 16 ]; do
    echo "{\"id\":\"t$i\",\"prompt\":\"What is $i * 7?\",\"max_tokens\":12,\"temperature\":$((i % 2))}"
    i=$((i + 1))
done >"$tmp/jobs.jsonl"
echo '{"id":"p","image":"circles.png","prompt":"Caption this image.","max_tokens":9}' >>"$tmp/jobs.jsonl"
echo '{"id":"q","image":"circles.png","prompt":"Describe this image.","max_tokens":9}' >>"$tmp/jobs.jsonl"

night() {
    "$nightshift" run "$tmp/jobs.jsonl" -m examples/demo-model -o "$1" --image-root examples/images --quiet \
        --max-sequences 3 </dev/null >"$tmp/log" 2>&1
}

mask() {
    sed -E 's/"created":[0-9]+/"created":0/; s/"(prefill_s|decode_s)":[0-9.]+/"\1":0/g' "$1"
}

fail() {
    failed=$((failed + 1))
    echo "FAILED $*"
    cat "$tmp/log"
}

# With so many kilobytes, or so many writes.
full() {
    rm -rf "$disk"/*
    if [ -n "$real" ]; then
        head -c $((1024 * 1024 - $1 * 1024)) /dev/zero >"$disk/ballast"
        night "$disk/out.jsonl"
    else
        (
            nightshift=$build/faulty
            FAULTY="write n=$1 on errno=28 path=$disk"
            export FAULTY
            night "$disk/out.jsonl"
        )
    fi
    rc=$?
    if [ $rc -ne 5 ] && [ $rc -ne 0 ]; then
        fail "room $1: exit $rc"
        return
    fi
    [ $rc -eq 0 ] || stopped=$((stopped + 1))
    if [ $rc -eq 5 ] && ! grep -q -i 'full\|space' "$tmp/log"; then
        fail "room $1: no word of it"
        return
    fi
    rm -f "$disk/ballast"
    if [ -s "$disk/out.jsonl.db" ] && ! "$nightshift" verify --db "$disk/out.jsonl.db" >"$tmp/log" 2>&1; then
        fail "room $1: not whole"
    elif ! night "$disk/out.jsonl"; then
        fail "room $1: does not go on"
    elif ! mask "$disk/out.jsonl" | cmp -s - "$tmp/expected"; then
        mask "$disk/out.jsonl" | diff - "$tmp/expected" >"$tmp/log"
        fail "room $1: another output"
    elif ! "$nightshift" verify --db "$disk/out.jsonl.db" "$disk/out.jsonl" >"$tmp/log" 2>&1; then
        fail "room $1: not whole in the end"
    else
        passed=$((passed + 1))
    fi
}

night "$tmp/plain.jsonl" || fail "the first run"
mask "$tmp/plain.jsonl" >"$tmp/expected"
for room in ${ROOMS:-0 8 40 84 96 104 116 124 132 140}; do full "$room"; done
[ $stopped -ge 4 ] || fail "only $stopped runs met the end of the disk"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
