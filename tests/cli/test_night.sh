#!/bin/sh
# What goes wrong at night, row by row, with the real program. Rows with a test of their own elsewhere:
#   kill -9, power cut                     crash/test_kill
#   other model or settings; edited input  test_run
#   disk full, I/O error                   fault/jobs
#   different batch, order, resume         test_identity, unit/pipeline
#   a loop; half a character               unit/reply (repetition, characters)
#   transient errors, retries              unit/queue, unit/pipeline
#   every kind of picture, pixel by pixel  golden/pictures
#   ten thousand images                    test_memory
nightshift=${NIGHTSHIFT:-./nightshift}
build=${BUILD:-build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
model=examples/demo-model
jobs=$tmp/jobs.jsonl
out=$tmp/out.jsonl

ok() {
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $1" && tail -n 5 "$tmp/log"; fi
}
line() {
    printf '%s\n' "$1" >>"$jobs"
}
picture() {
    line "{\"id\":\"$1\",\"image\":\"$1\",\"prompt\":\"Caption this image.\",\"max_tokens\":8}"
}
# of ID NAME PATTERN: the output line of that job matches.
of() {
    grep -F "\"custom_id\":\"$1\"" "$out" | grep -qE "$3"
    ok "$2" $?
}

good="cmyk.jpg grey.jpg exif_6.jpg exif_6.png rgb_16.png palette_8.png apng.png animated.gif animated.webp lossy.webp
    rgba_8.png one_pixel.png tall.png jpeg_named.png png_named.jpg webp_named.jpg"
cut="cut_half.jpg no_end_marker.jpg cut_half.png cut_stream.png cut_half.gif cut_half.bmp cut_half.webp"
unsupported="photo.heic photo.avif scan.tif drawing.svg photo.jxl"
"$build/tests/cli/unpack" tests/golden/pictures "$tmp" $good $cut $unsupported bomb_30000.png text.jpg >"$tmp/log"
ok "the pictures are there" $?
: >"$tmp/empty.png"
mkdir "$tmp/folder.png"

for p in $good $cut $unsupported bomb_30000.png text.jpg empty.png folder.png missing.png; do picture $p; done
line '{"id":"same-1","prompt":"What is 2 + 3?","max_tokens":20}'
line '{"id":"same-2","prompt":"What is 2 + 3?","max_tokens":20}'
line '{"id":"same-1","prompt":"Spell cat."}'
line 'no JSON'
line '{"id":"after","prompt":"Spell cat.","max_tokens":20}'
line "{\"id\":\"long\",\"prompt\":\"$(head -c 200000 /dev/zero | tr '\0' 'x')\"}"
line '{"id":"hangs","prompt":"Count from 1 to 99.","max_tokens":200,"timeout_s":0.000001}'
line '{"id":"json","prompt":"What is 4 * 2?","max_tokens":3,"response_format":{"type":"json_object"}}'

"$nightshift" check "$jobs" -m $model >"$tmp/log" 2>&1
grep -q "prompt_too_long" "$tmp/log"
ok "a prompt too long is told before the night" $?
"$nightshift" run "$jobs" -m $model -o "$out" >"$tmp/log" 2>&1
[ $? -eq 1 ] && grep -qE "[0-9]+ failed \(.*image_missing 1.*\), 0 left" "$tmp/log"
ok "some jobs failed: exit 1 and a summary by code" $?
[ "$(wc -l <"$out")" -eq "$(wc -l <"$jobs")" ]
ok "a line for every line" $?

of same-1 "the same prompt under two ids: the first" '"error":null'
of same-2 "the same prompt under two ids: the second" '"error":null'
line2=$(grep -n '"id":"same-1"' "$jobs" | sed -n 's/:.*//p' | tr '\n' ' ')
grep -q "on line ${line2%% *} and again on line $(echo "$line2" | cut -d' ' -f2)" "$out"
ok "a duplicate id is reported with both line numbers" $?
grep -q "\"custom_id\":null.*\"code\":\"invalid_json\".*\"line\":$(grep -n '^no JSON' "$jobs" | cut -d: -f1)" "$out"
ok "one bad line fails" $?
of after "and the rest runs" '"error":null'

for p in $good; do of $p "$p is read" '"error":null'; done
for p in $cut; do of $p "$p is never pixels" '"code":"image_truncated"'; done
for p in photo.heic:HEIC photo.avif:AVIF scan.tif:TIFF drawing.svg:SVG; do
    of "${p%:*}" "${p#*:} is refused by name" "\"code\":\"image_unsupported\",\"message\":\"[^\"]*${p#*:}"
done
of missing.png "a missing image" '"code":"image_missing"'
of empty.png "an empty image" '"code":"image_unreadable"'
of folder.png "an unreadable image" '"code":"image_'
of text.jpg "text that calls itself a picture" '"code":"image_un'
of bomb_30000.png "30000 x 30000 is refused from its header" '"code":"image_too_large".*30000'
of exif_6.jpg "EXIF orientation is applied to the size" '"width":29,"height":37,"orientation":6'
of exif_6.png "that of a PNG too" '"width":29,"height":37,"orientation":6'
of cmyk.jpg "CMYK is converted with a warning" '"warnings":\["[^"]*CMYK'
of rgb_16.png "16 bits are reduced with a warning" '"warnings":\["[^"]*16-bit'
of palette_8.png "a palette has a warning" '"warnings":\["palette'
of grey.jpg "grey has a warning" '"warnings":\["grey'
of animated.gif "of an animated GIF the first frame" 'first of 3 frames'
of apng.png "of an APNG the first frame" 'first of 3 frames'
of animated.webp "of an animated WebP the first frame" 'first of 2 frames'
of long "a prompt too long fails alone" '"code":"prompt_too_long"'
of hangs "a job over its time" '"code":"timeout"'
of json "JSON asked for and not given: the text is kept" '"code":"invalid_output_json".*|"error":.*"content":'

# Run again, the output torn: nothing to do, and the file is whole again.
cp "$out" "$tmp/first"
head -c -20 "$tmp/first" >"$out"
"$nightshift" run "$jobs" -m $model -o "$out" >"$tmp/log" 2>&1
grep -q "0 new, $(wc -l <"$jobs") known" "$tmp/log" && cmp -s "$out" "$tmp/first"
ok "a finished queue run again: nothing to do, the torn export rebuilt" $?

echo '{"id":"p","image":"changes.png","prompt":"Caption this image.","max_tokens":8}' >"$tmp/change.jsonl"
cp examples/images/circles.png "$tmp/changes.png"
"$nightshift" add "$tmp/change.jsonl" --db "$tmp/change.db" -q 2>"$tmp/log"
cp examples/images/yes.png "$tmp/changes.png"
"$nightshift" work --db "$tmp/change.db" -m $model >"$tmp/log" 2>&1
[ $? -eq 1 ] && "$nightshift" errors --db "$tmp/change.db" | grep -q image_changed
ok "an image edited since the import" $?

i=0
while [ $i -lt 40 ]; do echo "{\"id\":\"w$i\",\"prompt\":\"What is $i + 3?\",\"max_tokens\":30}" && i=$((i + 1)); done >"$tmp/many.jsonl"
"$nightshift" run "$tmp/many.jsonl" -m $model -o "$tmp/two.jsonl" -q --max-sequences 2 >"$tmp/log" 2>&1 &
pid=$! tries=0 rc=0
while [ $rc -ne 6 ] && kill -0 $pid 2>/dev/null && [ $tries -lt 100 ]; do
    sleep 0.02
    [ ! -e "$tmp/two.jsonl.db" ] || "$nightshift" run -m $model -o "$tmp/two.jsonl" -q >"$tmp/log" 2>&1
    rc=$? tries=$((tries + 1))
done
[ $rc -eq 6 ]
ok "two runs on one queue: the second exits 6" $?
wait $pid
[ $? -eq 0 ] && [ "$(wc -l <"$tmp/two.jsonl")" -eq 40 ]
ok "and the first is not touched" $?

db=$tmp/shared.db
"$nightshift" add "$tmp/many.jsonl" --db "$db" -q
for k in 1 2 3; do
    "$nightshift" work --db "$db" -m $model --ram 300M --threads 1 --max-sequences 2 -q >"$tmp/log$k" 2>&1 &
    eval "pid$k=$!"
done
bad=0
for k in 1 2 3; do
    eval "wait \$pid$k" || bad=1
done
ok "three workers on one queue end well" $bad
"$nightshift" verify --db "$db" >"$tmp/log" 2>&1 && "$nightshift" list --db "$db" --json >"$tmp/list" &&
    [ "$(grep -c '"state":"done".*"attempt":1,' "$tmp/list")" -eq 40 ]
ok "and every job ran once" $?

# network file system: a warning, a rollback journal (bytes 18 and 19 of the file are 1), and it works
db=$tmp/remote.db
FAULTY=remote "$build/faulty" run --db "$db" -i examples/jobs.jsonl -m $model -o "$tmp/remote.jsonl" --max-tokens 2 \
    >"$tmp/log" 2>&1
ok "a queue on a network file system" $?
grep -q 'remote.db is on a network file system; its locks must work' "$tmp/log"
ok "is warned of" $?
[ "$(od -An -tu1 -j18 -N2 "$db" | tr -d ' ')" = 11 ]
ok "and has no WAL" $?
"$nightshift" work --db "$db" -m $model >"$tmp/log" 2>&1 && ! grep -q network "$tmp/log"
ok "a local one is not warned of" $?

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
