#!/bin/sh
# How good a model is at each task it was taught: run.sh MODEL [JOBS_PER_TASK [OPTION...]], from the root of the repository.
# Writes jobs and pictures into build/eval/JOBS_PER_TASK (300) unless they are there, has nightshift answer them (options go to
# `nightshift run`; a run that was cut short goes on), and prints accuracy by task; then how the tasks use the experts.
# PYTHON: with Pillow and numpy. MISSES: how many wrong answers of a task to show.
model=$1 amount=${2:-300}
[ -d "$model" ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
if [ $# -gt 2 ]; then shift 2; else set --; fi
python=${PYTHON:-python3}
build=${BUILD:-build/release}
nightshift=${NIGHTSHIFT:-$build/nightshift}
set=build/eval/$amount
queue=$set/$(basename "$model")-$(cat "$model/model.safetensors" | cksum | cut -d' ' -f1)

make --no-print-directory -s "$build/nightshift" "$build/tests/bench/bench_tasks" || exit 1
[ -s "$set/jobs.jsonl" ] || "$python" tests/eval/make.py "$set" "$amount" || exit 1
"$nightshift" run -i "$set/jobs.jsonl" -m "$model" -o "$queue.jsonl" --db "$queue.db" "$@"
rc=$?
[ $rc -le 1 ] || exit $rc # 1: some jobs failed, which counts as wrong
"$python" tests/eval/score.py "$set/expected.jsonl" "$queue.jsonl" "${MISSES:-0}"
printf '\n'
# Up to 8 jobs of a task are enough to see which experts it uses. What must be JSON is left out: the bench does not constrain.
awk -F'"' '/response_format/ { next } { task = $4; sub(/-[0-9]*$/, "", task); if (n[task]++ < 8) print }' \
    "$set/jobs.jsonl" >"$set/some.jsonl"
"$build/tests/bench/bench_tasks" "$set/some.jsonl" "$model"
