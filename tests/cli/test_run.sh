#!/bin/sh
# run, its exit codes and what goes with it: resume, changed inputs and settings, shards, export, the queue commands.
. tests/lib/cli.sh

cat >"$tmp/good.jsonl" <<'END'
{"id":"a","prompt":"What is 2 + 3?","max_tokens":20}
{"id":"b","prompt":"Spell cat.","max_tokens":20}
{"id":"c","prompt":"What is 4 * 2?","max_tokens":20}
END
cp "$tmp/good.jsonl" "$tmp/bad.jsonl"
cat >>"$tmp/bad.jsonl" <<'END'
{"id":"b","prompt":"again"}
no JSON
{"id":"i","prompt":"What is it?","image":"missing.png"}
END

# holds NAME FILE PATTERN COUNT: so many lines match.
holds() {
    n=$(grep -ce "$3" "$2")
    if [ "$n" = "$4" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $1: $n lines with $3, not $4"; fi
}

run() {
    "$nightshift" run -m "$model" "$@"
}

expect "all done is 0" 0 "3 done, 0 failed" run "$tmp/good.jsonl" -o "$tmp/good.out"
holds "every answer is in the output" "$tmp/good.out" '"status_code":200' 3
cp "$tmp/good.out" "$tmp/first.out"
printf '{"torn' >>"$tmp/good.out"
expect "a finished queue again is 0" 0 "0 new, 3 known" run "$tmp/good.jsonl" -o "$tmp/good.out"
expect "and its output is rebuilt whole" 0 "" cmp "$tmp/good.out" "$tmp/first.out"
expect "also without the input" 0 "0 left" run -o "$tmp/good.out"

expect "some failed is 1" 1 "3 failed (" run "$tmp/bad.jsonl" -o "$tmp/bad.out" --errors-file "$tmp/bad.err"
holds "failures are in the output" "$tmp/bad.out" '"status_code":' 6
holds "failures are on their own too" "$tmp/bad.err" '"error":{"code"' 3
holds "a bad line has its number" "$tmp/bad.err" '"custom_id":null.*"code":"invalid_json".*"line":5' 1
holds "a duplicate names both lines" "$tmp/bad.err" 'on line 2 and again on line 4' 1
expect "errors lists them" 0 "image_missing" "$nightshift" errors --db "$tmp/bad.out.db"
cp examples/images/circles.png "$tmp/missing.png"
expect "retry takes back what can run" 0 "1 jobs will run again" "$nightshift" retry --db "$tmp/bad.out.db" --state failed
expect "and it runs" 1 "4 done, 2 failed" run "$tmp/bad.jsonl" -o "$tmp/bad.out"
mv "$tmp/missing.png" "$tmp/hidden.png"
run "$tmp/bad.jsonl" -o "$tmp/late.out" -q
mv "$tmp/hidden.png" "$tmp/missing.png"
expect "failed jobs stay failed" 1 "3 done, 3 failed" run "$tmp/bad.jsonl" -o "$tmp/late.out"
expect "unless they are to run again" 1 "4 done, 2 failed" run "$tmp/bad.jsonl" -o "$tmp/late.out" --retry-failed
"$nightshift" export --db "$tmp/late.out.db" --format metadata -o "$tmp/late.meta"
holds "a picture that came late has its path" "$tmp/late.meta" '"file_name":"missing.png"' 1
expect "verify finds it whole" 0 "whole" "$nightshift" verify --db "$tmp/bad.out.db" "$tmp/bad.out"

expect "no output is 2" 2 "needs --output" run "$tmp/good.jsonl"
expect "no model is 2" 2 "needs --model" "$nightshift" run "$tmp/good.jsonl" -o "$tmp/x.out"
expect "an input is never written to" 2 "is an input" run "$tmp/good.jsonl" -o "$tmp/good.jsonl"
expect "no queue is 2" 2 "no such queue" run -o "$tmp/none.out"
expect "strict is 3 before anything runs" 3 "2 of 6 jobs cannot run" run "$tmp/bad.jsonl" -o "$tmp/strict.out" --strict
[ ! -e "$tmp/strict.out" ] && [ ! -e "$tmp/strict.out.db" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED strict leaves a trace"; }
sum=$(sha256sum <"$tmp/good.out.db" | cut -c1-64)
printf '{"id":"d","prompt":"x"}\n{"id":"b","prompt":"another b"}\n' >"$tmp/more.jsonl"
expect "strict knows the ids of the queue" 3 "1 of 2 jobs cannot run" run "$tmp/more.jsonl" -o "$tmp/good.out" --strict
expect "and says where they are" 3 "line 2 of .*good.jsonl and again on line 2" run "$tmp/more.jsonl" -o "$tmp/good.out" --strict
expect "a dry run knows what is there" 0 "0 new, 3 known" run "$tmp/good.jsonl" -o "$tmp/good.out" --dry-run
expect "unless it is to be forgotten" 0 "3 new, 0 known" run "$tmp/good.jsonl" -o "$tmp/good.out" --dry-run --fresh
expect "the queue is as it was" 0 "$sum" sha256sum "$tmp/good.out.db"
expect "dry run leaves nothing" 0 "3 new" run "$tmp/good.jsonl" -o "$tmp/dry.out" --dry-run
[ ! -e "$tmp/dry.out.db" ] && passed=$((passed + 1)) || { failed=$((failed + 1)) && echo "FAILED a dry run leaves a trace"; }
expect "no model files is 4" 4 "nightshift: " "$nightshift" run "$tmp/good.jsonl" -m "$tmp" -o "$tmp/x.out"
echo "this is no database, and it is long enough to show it: a hundred bytes are wanted, so it goes on a little" >"$tmp/foreign.db"
expect "no database is 4" 4 "foreign.db" run "$tmp/good.jsonl" -o "$tmp/x.out" --db "$tmp/foreign.db"
expect "a limit with work left is 7" 7 "2 left" run "$tmp/good.jsonl" -o "$tmp/limit.out" --max-jobs 1
holds "the output has what is done" "$tmp/limit.out" '"status_code":200' 1
expect "and the rest follows" 0 "3 done" run "$tmp/good.jsonl" -o "$tmp/limit.out"
expect "other settings are refused" 4 "activations was f32 and is bf16" sh -c "rm -f '$tmp'/limit*; '$nightshift' run -m $model '$tmp/good.jsonl' -o '$tmp/limit.out' --max-jobs 1 -q; '$nightshift' run -m $model '$tmp/good.jsonl' -o '$tmp/limit.out' --activations bf16"
expect "unless allowed" 0 "3 done" run "$tmp/good.jsonl" -o "$tmp/limit.out" --activations bf16 --allow-model-change
NIGHTSHIFT_CRASH_AT=claim:done:1 "$nightshift" run -m "$model" "$tmp/good.jsonl" -o "$tmp/died.out" -q 2>"$tmp/err"
expect "a run that died with jobs claimed leaves the choice" 0 "3 done" run -o "$tmp/died.out" --activations bf16
other=$tmp/$(basename $model)
cp -r $model "$other" && echo " " >>"$other/config.json"
run "$tmp/good.jsonl" -o "$tmp/other.out" --max-jobs 1 -q
expect "another model is refused, whatever its name" 4 "model_sha256 was [0-9a-f]* and is" "$nightshift" run -m "$other" -o "$tmp/other.out"

(
    flock 9
    expect "a queue that is worked is 6" 6 "being worked" run "$tmp/good.jsonl" -o "$tmp/good.out"
    echo "$passed $failed" >"$tmp/counts"
) 9>"$tmp/good.out.db.lock"
read -r passed failed <"$tmp/counts"

sed 's/cat/dog/' "$tmp/good.jsonl" >"$tmp/edited" && cp "$tmp/edited" "$tmp/good.jsonl"
expect "an edited input is refused" 3 "changed since it was imported" run "$tmp/good.jsonl" -o "$tmp/good.out"
expect "or its difference runs" 0 "2 known, 1 changed" run "$tmp/good.jsonl" -o "$tmp/good.out" --on-changed-input rerun
expect "the other answers stand" 0 "" sh -c "grep -v '\"custom_id\":\"b\"' '$tmp/first.out' | while read -r l; do grep -qF \"\$l\" '$tmp/good.out' || exit 1; done"
expect "fresh forgets" 0 "3 new, 0 known" run "$tmp/good.jsonl" -o "$tmp/good.out" --fresh

ln -s good.out.db "$tmp/link.db"
expect "through a link as well" 0 "3 new, 0 known" run "$tmp/good.jsonl" -o "$tmp/good.out" --db "$tmp/link.db" --fresh
expect "which stays one" 0 "3 new, 0 known" sh -c "test -L '$tmp/link.db' && exec '$nightshift' run '$tmp/good.jsonl' -m '$model' -o '$tmp/good.out' --fresh"

printf 'SQLite format 3\000 of another program, quite long enough for a header of a hundred bytes....' >"$tmp/foreign.db"
cp "$tmp/foreign.db" "$tmp/foreign.copy"
expect "fresh leaves other databases alone" 2 "foreign.db is not a queue of nightshift" run "$tmp/good.jsonl" --db "$tmp/foreign.db" --fresh
expect "as they are" 0 "" cmp "$tmp/foreign.db" "$tmp/foreign.copy"

for k in 1 2 3 4 5 6; do echo "{\"id\":\"s$k\",\"prompt\":\"What is $k + 1?\",\"max_tokens\":20}"; done >"$tmp/six.jsonl"
for k in 1 2; do
    expect "shard $k" 0 "of other shards" run "$tmp/six.jsonl" -o "$tmp/shard$k.out" --shard $k/2
    expect "shard $k again" 0 "0 new" run "$tmp/six.jsonl" -o "$tmp/shard$k.out" --shard $k/2
done
expect "a missing shard is told" 7 "in no queue" "$nightshift" merge "$tmp/shard1.out.db" -o "$tmp/merged.out"
expect "shards merge" 0 "6 answers, 0 failures; 0 not finished, 0 of" "$nightshift" merge "$tmp/shard2.out.db" "$tmp/shard1.out.db" -o "$tmp/merged.out"
expect "in input order" 0 "^123456$" sh -c "sed 's/.*\"custom_id\":\"s\([1-6]\)\".*/\1/' '$tmp/merged.out' | tr -d '\n'; echo"

db=$tmp/queue.db
expect "add" 0 "3 new" "$nightshift" add "$tmp/good.jsonl" --db "$db"
expect "add again" 0 "0 new, 3 known" "$nightshift" add "$tmp/good.jsonl" --db "$db"
expect "cancel" 0 "1 jobs cancelled" "$nightshift" cancel b --db "$db"
expect "work" 1 "2 done, 0 failed" "$nightshift" work --db "$db" -m "$model"
expect "status" 0 '"pending":0,"running":0,"retry_wait":0,"done":2,"failed":0,"cancelled":1' "$nightshift" status --db "$db" --json
expect "list" 0 "c	done" "$nightshift" list --db "$db"
expect "show" 0 "cancelled by the user" "$nightshift" show b --db "$db"
expect "retry one" 0 "1 jobs will run again" "$nightshift" retry b --db "$db"
expect "work the rest" 0 "3 done" "$nightshift" work --db "$db" -m "$model"
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "{\"id\":\"p%d\",\"prompt\":\"a\"}\n{\"id\":\"q%d\"}\n", i, i }' >"$tmp/pages.jsonl"
"$nightshift" add "$tmp/pages.jsonl" --db "$tmp/pages.db" -q
"$nightshift" list --db "$tmp/pages.db" >"$tmp/pages"
holds "list gives every job once" "$tmp/pages" "^[0-9]" 6000
expect "in input order" 0 "" sh -c "tail -n +2 '$tmp/pages' | cut -f 4 | sort -nc"
"$nightshift" errors --db "$tmp/pages.db" --limit 1500 >"$tmp/pages"
holds "a limit goes over pages" "$tmp/pages" "^[0-9]" 1500
mkfifo "$tmp/pager"
for c in list errors; do
    "$nightshift" $c --db "$tmp/pages.db" --json >"$tmp/pager" &
    exec 8<"$tmp/pager"
    dd bs=1 count=1 <&8 >"$tmp/byte" 2>/dev/null
    expect "an open pager on $c does not hold the queue" 0 "1 jobs cancelled" "$nightshift" cancel p$passed --db "$tmp/pages.db"
    cat <&8 >"$tmp/byte"
    exec 8<&-
    wait
done
sed -n 5p tests/golden/demo/jobs.jsonl >"$tmp/large.jsonl"
expect "add does not know the model" 0 "1 new" "$nightshift" add "$tmp/large.jsonl" --image-root tests/golden/demo --db "$tmp/large.db"
expect "and work makes room for the largest picture" 0 "1 done" "$nightshift" work --db "$tmp/large.db" -m "$model"
for f in openai csv sharegpt; do
    expect "export $f" 0 "" "$nightshift" export --db "$db" --format $f -o "$tmp/export.$f"
done
holds "csv has a head and three rows" "$tmp/export.csv" ',' 4
cp "$db" "$tmp/before.db"
cp "$tmp/good.jsonl" "$tmp/before.jsonl"
expect "an export is not written over its queue" 2 "belongs to the queue" "$nightshift" export --db "$db" -o "$db"
expect "nor over what lies beside it" 2 "belongs to the queue" "$nightshift" export --db "$db" -o "$db-journal"
expect "nor over an input" 2 "good.jsonl is an input of" "$nightshift" export --db "$db" -o "$tmp/good.jsonl"
expect "nor over an input by the failures" 2 "is an input of" "$nightshift" export --db "$db" -o "$tmp/x.out" --errors-file "$tmp/good.jsonl"
expect "nor does a run go on over it" 2 "is an input of" run --db "$db" -o "$tmp/good.jsonl"
expect "a merge is not written over its queue" 2 "is an input" "$nightshift" merge "$db" "$tmp/large.db" -o "$db"
expect "nor over an input of it" 2 "is an input of" "$nightshift" merge "$db" "$tmp/large.db" -o "$tmp/good.jsonl"
mkfifo "$tmp/fifo"
expect "a pipe is not replaced" 2 "fifo is a pipe" "$nightshift" export --db "$db" -o "$tmp/fifo"
is "they are as they were" sh -c "cmp '$db' '$tmp/before.db' && cmp '$tmp/good.jsonl' '$tmp/before.jsonl' && [ -p '$tmp/fifo' ]"
expect "no folder for the output is told first" 5 "cannot create" run "$tmp/six.jsonl" --db "$tmp/early.db" -o "$tmp/nodir/out"
expect "also for the failures" 2 "is a folder" run "$tmp/six.jsonl" --db "$tmp/early.db" -o "$tmp/early.out" --errors-file "$tmp"
is "and nothing has run" [ ! -e "$tmp/early.db" ]
expect "pictures of a folder with one prompt" 0 "1 done" run examples/images/circles.png --prompt "Caption this image." -o "$tmp/pic.out" --max-tokens 60
mkdir "$tmp/pics" && cp examples/images/circles.png "$tmp/pics/one.png"
expect "sidecar texts" 0 "1 done" run "$tmp/pics" --prompt "Caption this image." --format txt --db "$tmp/pics.db" --max-tokens 60
holds "beside the picture" "$tmp/pics/one.txt" "circle" 1
expect "info" 0 "8: 6 KDA, 2 MLA" "$nightshift" info -m "$model"
expect "plan" 0 "experts cached" "$nightshift" plan -m "$model" --ram 200M
expect "a plan without jobs says for which it is" 0 "pictures of up to 1920 x 1080" "$nightshift" plan -m "$model" --ram 200M
expect "a plan for jobs" 0 "expected: .* jobs an hour" "$nightshift" plan "$tmp/good.jsonl" -m "$model" --ram 200M
echo "{}" >"$tmp/none.jsonl"
expect "a plan without a job that can run" 3 "no job that can run" "$nightshift" plan "$tmp/none.jsonl" -m "$model" --ram 200M
expect "a plan that cannot work is refused with the floor" 2 "needs at least" "$nightshift" plan -m "$model" --ram 10M
expect "progress as JSON" 0 '"event":"ended"' run "$tmp/good.jsonl" -o "$tmp/json.out" --progress json

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
