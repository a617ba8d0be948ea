#!/bin/sh
# A night of small pictures, some of them hostile: the counts by error code are right and memory stays flat.
#
#     tests/bench/pictures.sh [COUNT [EVERY [PIECE]]]     10000 pictures, one in 100 hostile, all in one run
#
# Hostile are cut files, wrong checksums, headers that lie, formats that are not read, and JPEG that crash, hang or eat memory
# in a decoder that trap.c has made faulty. With PIECE the run stops after so many jobs each time and is taken up again.
# DIR keeps the queue in that folder: with STEPS=n the command ends after n pieces and goes on when it is given again.
# Memory is flat when what a run holds grows by at most GROWTH_KB (default 4096) from its first tenth (or 100 jobs) to its last job. --ram is
# small, so that the store of encoded pictures, which is kept filled, is full early.
build=${BUILD:-build/release}
nightshift=${NIGHTSHIFT:-$build/nightshift}
count=${1:-10000} every=${2:-100} piece=${3:-0}
dir=${DIR:-$(mktemp -d)}
[ -n "$DIR" ] && mkdir -p "$dir" || trap 'rm -rf "$dir"' EXIT
failed=0

fail() {
    failed=$((failed + 1))
    echo "FAILED $*"
}

# A sanitizer keeps what was freed, and does not like to be loaded second.
trap_word=trap most_kb=${GROWTH_KB:-4096}
case $build in *asan*) trap_word= most_kb=1000000 ;; esac
preload=
if [ -n "$trap_word" ] && ${CC:-cc} -shared -fPIC -D_GNU_SOURCE -o "$dir/trap.so" tests/cli/trap/trap.c -ldl; then
    preload=$dir/trap.so
else
    trap_word=
fi
[ -e "$dir/jobs.jsonl" ] || "$build/tests/cli/make_pictures" "$dir" "$count" "$every" $trap_word || exit 1

status_of() {
    "$nightshift" status --db "$dir/queue.db" --json | tr '{},' '\n\n\n' | sed -n "s/^\"$1\"://p" | head -n 1
}

# Resident now, and at most so far.
kb() {
    awk -v what="$2:" '$1 == what { print $2 }' "/proc/$1/status" 2>/dev/null
}

# One piece. Its memory when it is warm, the most until the last of them, and the peak of all.
run_piece() {
    LD_PRELOAD=$preload "$nightshift" run "$dir/jobs.jsonl" -m examples/demo-model --db "$dir/queue.db" -o "$dir/out.jsonl" \
        --max-jobs "$limit" --ram 100M --image-timeout 2s --progress json >"$dir/log" 2>&1 </dev/null &
    pid=$!
    early= late=0 peak=
    while kill -0 $pid 2>/dev/null; do
        now=$(kb $pid VmRSS) top=$(kb $pid VmHWM)
        ended=$(grep -c '"event":"job"' "$dir/log")
        [ -n "$top" ] && peak=$top
        if [ -n "$now" ] && ! grep -q '"event":"ended"' "$dir/log"; then
            [ -z "$early" ] && [ "$ended" -ge "$warm" ] && early=$now
            [ -n "$early" ] && [ "$now" -gt "$late" ] && late=$now
        fi
        sleep 0.2
    done
    wait $pid
    rc=$?
}

limit=$count
[ "$piece" -gt 0 ] && limit=$piece
# By then every buffer was used once.
warm=$((limit / 10))
[ "$warm" -ge 100 ] || warm=100
step=0
while :; do
    step=$((step + 1))
    begun=$(date +%s)
    run_piece
    printf '%s: %s of %s ended, %s s, %s kB when warm, at most %s kB then; peak of all %s kB\n' "$step" \
        "$(($(status_of done) + $(status_of failed)))" "$count" $(($(date +%s) - begun)) "${early:-?}" "$late" "$peak"
    if [ -n "$early" ]; then
        [ $((late - early)) -le "$most_kb" ] || fail "memory grew by $((late - early)) kB"
    fi
    [ $rc -eq 7 ] || break
    [ "$step" != "$STEPS" ] || exit $failed
done
[ $rc -eq 1 ] || fail "exit $rc, expected 1: $(tail -n 3 "$dir/log")"

while read -r what n; do
    got=$(status_of "$what")
    echo "$what: $got of $n"
    [ "$got" = "$n" ] || fail "$what: $got, expected $n"
done <"$dir/expected"
[ "$(wc -l <"$dir/out.jsonl")" -eq "$count" ] || fail "the output has $(wc -l <"$dir/out.jsonl") lines"
[ -z "$preload" ] || "$nightshift" errors --db "$dir/queue.db" | grep -q 'decoder crashed' || fail "no decoder crashed"
[ -z "$preload" ] || "$nightshift" errors --db "$dir/queue.db" | grep -q 'took more than 2 s' || fail "no decoder hung"
[ $failed -eq 0 ] && echo "pictures: as expected"
exit $failed
