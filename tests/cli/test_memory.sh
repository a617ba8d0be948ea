#!/bin/sh
# Memory stays flat however long the input is: short lines by the ten thousand, pictures inside the lines. FULL=lines takes a
# million lines, FULL=pictures 2 GiB of them, minutes and 5 GB in TMPDIR, within 64 MiB. PEAKS=1 tells each peak.
nightshift=${NIGHTSHIFT:-./nightshift}
build=${BUILD:-build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
model=examples/demo-model
lines=20000 mib=20 most=16
[ "$FULL" != lines ] || lines=1000000 most=64
[ "$FULL" != pictures ] || mib=2048 lines=100 most=64
db=$tmp/queue.db

done_with() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}
case $build in
*asan | *tsan) echo "skipped: a sanitizer's own memory is not flat" && skipped=1 && done_with ;;
esac

# peak NAME LIMIT_MIB EXIT COMMAND...: runs, ends with EXIT, within the limit.
peak() {
    name=$1 limit=$2 want=$3
    shift 3
    "$build/tests/cli/peak_rss" "$limit" "$nightshift" "$@" >"$tmp/log" 2>&1
    rc=$?
    [ -z "$PEAKS" ] || echo "$name: $(tail -n 1 "$tmp/log"), exit $rc"
    if [ $rc -eq "$want" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit $rc, not $want, or over $limit MiB"
        tail -n 5 "$tmp/log"
    fi
}

awk -v n=$lines 'BEGIN { for (i = 0; i < n; i++) printf "{\"id\":\"job-%d\",\"prompt\":\"What is %d + 3?\",\"max_tokens\":4}\n", i, i }' \
    >"$tmp/lines.jsonl"
peak "check of $lines lines" $most 0 check "$tmp/lines.jsonl"
peak "add of $lines lines" $most 0 add "$tmp/lines.jsonl" --db "$db"
peak "add of them again" $most 0 add "$tmp/lines.jsonl" --db "$db"
peak "run of some, within its budget and 64 MiB" 364 7 run -m $model --db "$db" -o "$tmp/out.jsonl" --ram 300M --max-jobs 20 -q
peak "status" $most 0 status --db "$db"
peak "cancel of the rest" $most 0 cancel --db "$db" --all
peak "export of $lines lines" $most 0 export --db "$db" -o "$tmp/out.jsonl"
peak "export as csv" $most 0 export --db "$db" --format csv -o "$tmp/out.csv"
peak "verify of queue and export" $most 0 verify --db "$db" "$tmp/out.jsonl"
peak "backup" $most 0 backup --db "$db" -o "$tmp/copy.db"
peak "merge with the copy" $most 1 merge "$db" "$tmp/copy.db" -o "$tmp/merged.jsonl"
[ "$(wc -l <"$tmp/out.jsonl")" -eq $lines ] && cmp -s "$tmp/out.jsonl" "$tmp/merged.jsonl" && passed=$((passed + 1)) ||
    { failed=$((failed + 1)) && echo "FAILED every line is in the output"; }
rm -f "$tmp"/*.jsonl "$tmp"/*.db "$tmp"/*.csv

[ "$FULL" != lines ] || done_with

# A BMP of 600 x 600, 1.4 MB as base64, in every line.
{
    printf 'BM\066\173\020\000\000\000\000\000\066\000\000\000\050\000\000\000\130\002\000\000\130\002\000\000\001\000\030\000'
    head -c 24 /dev/zero
    head -c 1080000 /dev/urandom
} >"$tmp/large.bmp"
base64 -w 0 "$tmp/large.bmp" >"$tmp/large.txt"
n=$((mib * 1048576 / 1440100 + 1)) i=0
while [ $i -lt $n ]; do
    printf '{"id":"pic-%d","prompt":"Caption this image.","max_tokens":4,"image":"data:image/bmp;base64,' $i
    cat "$tmp/large.txt"
    printf '"}\n'
    i=$((i + 1))
done >"$tmp/pictures.jsonl"
peak "add of $mib MiB of pictures" $most 0 add "$tmp/pictures.jsonl" --db "$db"
peak "run of some, within its budget and 64 MiB" 364 7 run -m $model --db "$db" -o "$tmp/out.jsonl" --ram 300M --max-jobs 4 -q
[ "$(find "$db" -size +$((mib / 8))M | wc -l)" -eq 0 ] && [ "$(grep -c '"error":null' "$tmp/out.jsonl")" -ge 4 ] &&
    passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED pictures are worked and not copied into the queue"; }
done_with
