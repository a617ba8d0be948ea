#!/bin/sh
# What an order of jobs is worth, in counts: input order against auto, the same options for both, some shuffles of each queue.
# orders.sh BUILD_DIR [SHUFFLES [TRACE...]]. A: the demo's jobs, 10 % and 25 % of the experts cached, drafts as by default and
# none; B: 20 questions on each of 50 pictures under one long system prompt; C: a made-up model whose words and experts fall into
# eight topics, 15 % cached; captions alone, one prompt alone. Then what drafts are worth, for captions and for text without
# sense, and guesses of a job's experts, for the demo, the made-up model and recorded routes. Exit 1 when auto reads more than 2 % more anywhere, by the median.
#
# Strength of topics: a topic's 16 of 128 experts take about 60 % of what its tokens use. In Kimi-Linear, the recorded model
# nearest to K3, the eighth of the experts that a document uses most takes 59 %. Weaker topics gain less (strength 4: 2 - 17 %).
build=$1 shuffles=${2:-3}
if [ $# -gt 2 ]; then shift 2; else set --; fi
demo=examples/demo-model
model=$build/bench-orders
"$build/tests/bench/bench_model" "$model" --tiny --hidden=512 --layers=8 --latent=64 --expert-width=64 --experts=128 --top-k=8 \
    --vocab=4096 --kda-heads=2 --kda-dim=64 --mla-heads=2 --q-lora=64 --kv-lora=64 --dense-width=256 --topics=8 \
    --bias-spread=0.02 --topic-strength=16 --jobs=128 --job-words=32 --job-tokens=16 || exit 1
trap 'rm -rf "$model"' EXIT

queue() {
    name=$1 at=$2
    shift 2
    "$build/tests/bench/bench_order" "$shuffles" "$name" "$at" --max-sequences 8 "$@" || echo "failed: $name $*"
}

rows() {
    for cached in 10% 25%; do
        for drafts in auto off; do queue mixed $demo --cache-experts $cached --draft $drafts; done
    done
    queue captions $demo --cache-experts 10%
    queue same $demo --cache-experts 10%
    queue "$model/jobs.jsonl" "$model" --cache-experts 15%
    shuffles=1 queue questions $demo --cache-experts 10%
}
"$build/tests/bench/bench_order" --head
rows | awk '{ print; fflush() } /^failed/ { bad = bad " " $2 }
    / median |questions/ { for (i = 1; i < NF; i++) if ($(i + 1) == "%" && $i < -2) bad = bad " " $1 }
    END { if (bad) { print "more than 2 % worse:" bad; exit 1 } print "nowhere more than 2 % worse" }'
code=$?
printf '\n'
"$build/tests/bench/bench_order" drafts --head
for name in captions random; do
    "$build/tests/bench/bench_order" drafts "$shuffles" $name $demo --max-sequences 8 --cache-experts 10%
done
printf '\n'
"$build/tests/bench/bench_predict" tests/golden/demo/jobs.jsonl $demo --image-root tests/golden/demo
printf '\n'
"$build/tests/bench/bench_predict" "$model/jobs.jsonl" "$model"
for trace; do
    printf '\n%s\n' "${trace##*/}"
    "$build/tests/bench/bench_predict" "$trace"
done
exit $code
