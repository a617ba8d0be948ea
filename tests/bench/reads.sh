#!/bin/sh
# What a crowd saves: the same 64 jobs run 1, 8 and 64 at a time over a made-up model (tests/bench/bench_model.c) whose experts
# fit into memory to a fifth, with what was read for them. Counts, not seconds: only what is read ahead in vain differs a
# little from run to run. Exit 1 when an answer depends on the crowd. reads.sh BUILD_DIR; the model stays there.
build=$1
model=$build/bench-reads
"$build/tests/bench/bench_model" "$model" --tiny --hidden=512 --layers=12 --latent=128 --expert-width=128 --experts=128 \
    --top-k=8 --vocab=4096 --kda-heads=4 --kda-dim=64 --mla-heads=4 --q-lora=128 --kv-lora=128 --dense-width=1024 \
    --jobs=64 --job-words=32 --job-tokens=16 || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# number NAME: a member of the last event
number() { sed -n "s/.*\"event\":\"ended\".*\"$1\":\([0-9]*\).*/\1/p" "$tmp/log" | tail -n 1; }

echo "jobs at a time    sweeps   tokens   MB read   MB a token"
for crowd in 1 8 64; do
    "$build/nightshift" run -i "$model/jobs.jsonl" -m "$model" -o "$tmp/$crowd.jsonl" --max-sequences $crowd \
        --cache-experts 20% --progress json 2>"$tmp/log" || { cat "$tmp/log"; exit 1; }
    # rows: prompt tokens and answers, as far as they were computed
    awk -v crowd=$crowd -v sweeps="$(number sweeps)" -v rows="$(number rows)" -v bytes="$(number bytes_read)" 'BEGIN {
        printf "%14d %9d %8d %9.0f %12.2f\n", crowd, sweeps, rows, bytes / 1e6, bytes / 1e6 / rows
    }'
    sed 's/.*"choices":\(.*\),"usage".*/\1/' "$tmp/$crowd.jsonl" >"$tmp/$crowd.answers"
    cmp "$tmp/1.answers" "$tmp/$crowd.answers" || exit 1
done
echo "the answers are the same, byte for byte"
