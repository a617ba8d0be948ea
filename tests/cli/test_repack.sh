#!/bin/sh
# A repacked model is a model: it gives the answers of the original and goes on with its queue; killed at any time the
# repack goes on; a full disk and a folder in use are refused.
. tests/lib/cli.sh
skipped=0

repack() {
    call repack -m $model "$@"
}
identity() {
    "$NIGHTSHIFT" info -m "$1" | grep '^identity'
}

repack -o "$tmp/new" --shard-size 1M
is "it succeeds" [ $code -eq 0 ]
is "and says what it did in one line" grep -qx "\([0-9]*\) files, 1[0-9.]* MB, 224 experts: \1 written, 0 there already; all equal to the model's" "$tmp/err"
is "one line it is" [ "$(cat "$tmp/out" "$tmp/err" | wc -l)" -eq 1 ]
is "the small files are the same" cmp $model/tiktoken.model "$tmp/new/tiktoken.model"
is "it is the same model" [ "$(identity $model)" = "$(identity "$tmp/new")" ]
repack -o "$tmp/new" --shard-size 1M --quiet
is "again: nothing to do, nothing said" [ $code -eq 0 -a ! -s "$tmp/err" ]

# The answers of a run: half of it with the original, the rest with the repacked model.
mask() {
    sed -E 's/"created":[0-9]+/"created":0/; s/"(prefill_s|decode_s)":[0-9.e+-]+/"\1":0/g; s/"model":"[^"]*"/"model":""/' "$1"
}
run() {
    "$NIGHTSHIFT" run -i examples/jobs.jsonl --quiet "$@" </dev/null >"$tmp/out" 2>"$tmp/err"
    code=$?
}
run -m $model -o "$tmp/old.jsonl"
is "the original's run" [ $code -eq 0 ]
run -m "$tmp/new" -o "$tmp/new.jsonl"
is "the new one's run" [ $code -eq 0 ]
mask "$tmp/old.jsonl" >"$tmp/old.masked"
mask "$tmp/new.jsonl" >"$tmp/new.masked"
is "the same answers" cmp "$tmp/old.masked" "$tmp/new.masked"
run -m $model -o "$tmp/both.jsonl" --max-jobs 3
is "stopped after three jobs" [ $code -eq 7 ]
run -m "$tmp/new" -o "$tmp/both.jsonl"
is "the queue goes on with the new one" [ $code -eq 0 ]
mask "$tmp/both.jsonl" >"$tmp/both.masked"
is "with the same answers" cmp "$tmp/old.masked" "$tmp/both.masked"

# Killed ten times, then left alone.
kills=0
for wait in 0.01 0.02 0.04 0.06 0.08 0.1 0.02 0.05 0.1 0.15; do
    "$NIGHTSHIFT" repack -m $model -o "$tmp/killed" --shard-size 300K 2>/dev/null &
    pid=$!
    sleep $wait
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
done
is "some kills came in time" [ $kills -gt 2 ]
repack -o "$tmp/killed" --shard-size 300K
is "after kills it goes on" [ $code -eq 0 ]
repack -o "$tmp/alone" --shard-size 300K
is "and ends with the same files" diff -r "$tmp/killed" "$tmp/alone"

# Asked to stop it says how to go on.
"$NIGHTSHIFT" repack -m $model -o "$tmp/asked" --shard-size 10K >"$tmp/out" 2>"$tmp/err" &
pid=$!
while kill -0 $pid 2>/dev/null && [ ! -e "$tmp/asked/config.json" ]; do sleep 0.01; done
kill -TERM $pid 2>/dev/null
wait $pid
code=$?
is "stopped" [ $code -eq 143 ]
is "it says so" grep -qx "nightshift: stopped; run it again to go on" "$tmp/err"
is "nothing unfinished is left" [ -z "$(find "$tmp/asked" -name '*.tmp*')" ]

refused() {
    name=$1 want=$2 pattern=$3
    shift 3
    repack "$@"
    is "$name: exit $want" [ $code -eq "$want" ]
    is "$name: $pattern" grep -q "^nightshift: .*$pattern" "$tmp/err"
}
refused "into itself" 2 "$model is the model itself" -o $model
refused "another shard size" 2 "is not what this repack writes there" -o "$tmp/new" --shard-size 2M
mkdir "$tmp/mine"
echo keep >"$tmp/mine/notes.txt"
refused "a folder in use" 2 "notes.txt is not what" -o "$tmp/mine"
is "is left alone" [ "$(ls "$tmp/mine")" = notes.txt ]
refused "no output" 2 "needs --output DIR"
model=$tmp/none refused "no model" 4 "none" -o "$tmp/other"

# A small disk of its own for one command: SIZE. Lists what it wrote.
small() {
    unshare -rm sh -c 'mount -t tmpfs -o size=$1 tmpfs "$2" && { "$3" repack -m "$4" -o "$2/new"; code=$?; ls "$2/new"; exit $code; }' \
        sh "$1" "$tmp/small" "$NIGHTSHIFT" $model >"$tmp/out" 2>"$tmp/err"
    code=$?
}
mkdir "$tmp/small"
if unshare -rm mount -t tmpfs tmpfs "$tmp/small" 2>/dev/null; then
    small 8M
    is "a small disk" [ $code -eq 5 ]
    is "both figures are told" grep -q "^nightshift: .* needs [0-9]* bytes more, its disk has [0-9]* free$" "$tmp/err"
    is "nothing is written" [ ! -s "$tmp/out" ]
    small 12M
    is "a disk just large enough" [ $code -eq 0 ]
else
    skipped=$((skipped + 1))
    echo "skipped: a small disk: no right to mount one"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
