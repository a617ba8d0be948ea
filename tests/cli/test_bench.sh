#!/bin/sh
# bench prints figures beside limits, leaves out what does not fit, and finds no section it does not have.
. tests/lib/cli.sh

bench() {
    call bench "$@"
}
says() {
    grep -q -e "$1" "$tmp/out"
}
complains() {
    [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q -e "^nightshift: .*$1" "$tmp/err"
}

bench -m $model --ram 256M --threads 2 --seconds 0.01 --only machine --only disk --only decode --only prefill
is "figures" [ $code -eq 0 ]
is "speeds for the plan" says "^ *256  *[0-9.]*  *[0-9.]*$"
is "plain loops" says "^ *4  *[0-9]*  *[a-z]*  *[0-9]*$"
is "streaming against its target" says "% of limit  target %$"
is "decode against its bound" says "read/bound  best/bound"
is "one table a section" [ "$(grep -c '^[a-z]*: ' "$tmp/out")" -ge 4 ]
is "nothing else" [ ! -s "$tmp/err" ]

bench -m $model --ram 256M --seconds 0.01 --only overlap --only vit --json
is "JSON" [ $code -eq 0 ]
is "one object a line" [ "$(grep -c '^{"section":"[a-z]*",.*}$' "$tmp/out")" -eq "$(wc -l <"$tmp/out")" ]
# either figures or the reason why there are none: it takes as long as it takes
is "sweeps beside their parts" [ "$(grep -c '"section":"overlap",.*\("arithmetic_alone_s"\|"why":\)' "$tmp/out")" -eq 4 ]
is "larger pictures than the model takes" says '"skipped":"10764 patches"'

bench -m $model --ram 256M --seconds 0.02 --max-jobs 4 --only captions
is "a queue from end to end" [ $code -eq 0 ]
is "one job at a time" says "^one at a time  *[1-4]  *1 "
is "as planned" says "^ *as planned  *[1-4] "
is "and nothing is left behind" [ -z "$(ls "$tmp" | grep nightshift)" ]

bench -m $model --ram 1M --only decode
is "what does not fit is left out" says "^skipped: 1 sequences, 10 % cached: --ram 1.0 MiB is too little"

for i in 1 2 3 4 5 6; do echo '{"layers":[[],[1,2],[3,4]]}'; done >"$tmp/routes"
bench --cache-sim "$tmp/routes"
is "policies on routes, without a model" [ $code -eq 0 ]
is "uses and first uses" says "^ *1  *50  *24  *4 "

# the queue is its own: jobs of every form, one of them in enforced JSON
printf '%s\n' '{"id":"1","prompt":"What is 2 + 3?","max_tokens":4}' \
    '{"id":"2","prompt":"What is 2 + 3?","max_tokens":4,"response_format":{"type":"json_object"}}' >"$tmp/jobs.jsonl"
is "orders compared, JSON among them" "$BUILD/tests/bench/bench_order" 1 "$tmp/jobs.jsonl" $model --max-sequences 2

bench -m $model --only nothing
is "an unknown section" [ $code -eq 2 ]
is "is named" complains "there is no section nothing"
bench -m $model --only cache
is "routes are needed" complains "needs --cache-sim"
bench
is "a model is needed" complains "needs --model"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
