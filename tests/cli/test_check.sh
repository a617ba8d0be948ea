#!/bin/sh
# check finds what run would reject, says where, and goes on.
. tests/lib/cli.sh

check() {
    call check "$@"
}
says() {
    grep -qxF -e "$1" "$tmp/out"
}

check -m $model examples/jobs.jsonl
is "the examples are fine" [ $code -eq 0 ]
is "and counted" says "$(wc -l <examples/jobs.jsonl | tr -d ' ') jobs, 0 of them bad"

picture=$(ls "$PWD"/examples/images/*.png | head -n 1)
mkdir "$tmp/pictures"
cp "$picture" "$tmp/pictures/a.png"
head -c 100 "$picture" >"$tmp/pictures/cut.png"
echo "not a picture" >"$tmp/pictures/text.jpg"
: >"$tmp/pictures/empty.png"
base64=$(base64 <"$picture" | tr -d '\n')
cat >"$tmp/jobs.jsonl" <<END
{"id":"good","image":"pictures/a.png","prompt":"What is it?"}
{"id":"inline","image":"data:image/png;base64,$base64","prompt":"What is it?"}

{"id":"good","prompt":"again"}
{"id":"typo","prompt":"q","temprature":1}
not json
{"id":"gone","image":"pictures/none.png","prompt":"q"}
{"id":"text","image":"pictures/text.jpg","prompt":"q"}
{"id":"empty","image":"pictures/empty.png","prompt":"q"}
{"id":"long","prompt":"q","max_tokens":2000000000}
{"prompt":"q"}
{"id":"other","prompt":"q","model":"another"}
END
jobs=$tmp/jobs.jsonl
check -m $model "$jobs"
is "bad lines make exit 1" [ $code -eq 1 ]
is "duplicate" says "$jobs:4: duplicate_id: custom_id \"good\" was first given by $jobs line 1"
is "unknown field" says "$jobs:5: unsupported_field: temprature: unknown field; did you mean \"temperature\"?"
is "no JSON" says "$jobs:6: invalid_json: byte 1: expected a JSON value, found 'n'"
is "missing image" grep -q "^$jobs:7: image_missing: no such file: $tmp/pictures/none.png, pictures/none.png$" "$tmp/out"
is "no picture" grep -q "^$jobs:8: image_[a-z]*: $tmp/pictures/text.jpg: " "$tmp/out"
is "empty picture" says "$jobs:9: image_unreadable: $tmp/pictures/empty.png is empty"
is "too long" grep -q "^$jobs:10: prompt_too_long: .* max_tokens 2000000000 " "$tmp/out"
is "no id" says "$jobs:11: invalid_request: custom_id is missing"
is "another model" says "$jobs:12: invalid_request: the job asks for model \"another\", loaded is \"demo-model\""
is "summary" grep -q "^11 jobs, 9 of them bad, .*1 duplicate_id, .*1 prompt_too_long" "$tmp/out"
is "images are counted" grep -q "^2 images of " "$tmp/out"
is "prompts are counted" grep -q " prompt tokens, the longest prompt " "$tmp/out"

check "$jobs" --strict
is "strict makes exit 3" [ $code -eq 3 ]
check "$jobs" --on-duplicate skip --json
is "one JSON object a line" [ "$(grep -c '^{.*}$' "$tmp/out")" -eq "$(wc -l <"$tmp/out")" ]
is "a problem as JSON" says "{\"file\":\"$jobs\",\"line\":11,\"code\":\"invalid_request\",\"message\":\"custom_id is missing\"}"
is "the summary as JSON" grep -q '^{"jobs":11,"bad":6,"codes":{.*"image_missing":1.*"images":2,' "$tmp/out"
check "$jobs" --quiet
is "quiet: problems alone" [ "$(grep -vc "^$jobs:" "$tmp/out")" -eq 0 ]

check "$tmp/pictures" --prompt "What is it?"
is "a folder of pictures" grep -q "^4 jobs, [23] of them bad" "$tmp/out"
check "$tmp/pictures/a.png" --prompt "What is it?" --max-pixels 10
is "limits of pictures" grep -q "^$tmp/pictures/a.png: image_too_large: " "$tmp/out"
mkdir "$tmp/odd"
: >"$tmp/odd/line
end.png"
check "$tmp/odd" --prompt q
is "a problem stays one line, whatever the file's name" [ "$(wc -l <"$tmp/out")" -eq 4 ]
check "$tmp/pictures"
is "pictures need a prompt" [ $code -eq 2 ]

# Shards part the jobs: each is in one of them.
all=0
for k in 1 2 3; do
    check examples/jobs.jsonl --shard $k/3
    all=$((all + $(sed -n 's/^\([0-9]*\) jobs.*/\1/p' "$tmp/out")))
done
is "shards" [ $all -eq "$(wc -l <examples/jobs.jsonl)" ]

# The folder of the JSONL comes first, then the working folder; --image-root and --map-path change that.
printf '%s\n' '{"id":1,"image":"C:\\old\\a.png","prompt":"q"}' >"$tmp/win.jsonl"
check "$tmp/win.jsonl"
is "a Windows path asks for a map" grep -q "image_missing: .*--map-path" "$tmp/out"
check "$tmp/win.jsonl" --map-path "C:\\old=$tmp/pictures"
is "and takes it" [ $code -eq 0 ]
echo '{"id":1,"image":"a.png","prompt":"q"}' >"$tmp/root.jsonl"
check --image-root "$tmp/pictures" "$tmp/root.jsonl"
is "a root" [ $code -eq 0 ]

check -m "$tmp" "$jobs"
is "a folder that is no model" [ $code -eq 4 ]

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
