#!/bin/sh
# A model that cannot be used: one line that names file and fault, exit 4, nothing written.
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
echo '{"id":"a","image":"'"$PWD"'/examples/images/moon.png","prompt":"Where is the moon?"}' >"$tmp/jobs.jsonl"

# expect WHAT NEEDLE: runs with the model in $tmp/m, then restores it.
expect() {
    "$nightshift" run -i "$tmp/jobs.jsonl" -m "$tmp/m" -o "$tmp/out.jsonl" --quiet </dev/null >"$tmp/log" 2>&1
    rc=$?
    if [ $rc -eq 4 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] && grep -q "$2" "$tmp/log" && [ ! -e "$tmp/out.jsonl" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $1: exit $rc"
        cat "$tmp/log"
    fi
    fresh
}
fresh() {
    rm -rf "$tmp/m" "$tmp"/out.*
    cp -r examples/demo-model "$tmp/m"
}
edit() { sed "s/$1/" "$tmp/m/config.json" >"$tmp/c" && ! cmp -s "$tmp/c" "$tmp/m/config.json" && mv "$tmp/c" "$tmp/m/config.json"; }
fresh

for f in config.json model.safetensors tiktoken.model tokenizer_config.json; do
    rm "$tmp/m/$f"
    expect "$f is missing" "$f"
done
head -c 5000000 examples/demo-model/model.safetensors >"$tmp/m/model.safetensors"
expect "truncated shard" "model.safetensors ends at byte 5000000, tensor .* needs bytes"
head -c 4 examples/demo-model/model.safetensors >"$tmp/m/model.safetensors"
expect "shard of 4 bytes" "model.safetensors"
printf '\377\377\377\377\377\377\377\177' | cat - examples/demo-model/model.safetensors >"$tmp/m/model.safetensors"
expect "header longer than the file" "model.safetensors"
head -c 1000 examples/demo-model/tiktoken.model >"$tmp/m/tiktoken.model"
expect "half a vocabulary" "tiktoken.model"
for change in '"hidden_size": 160/"hidden_size": 161' '"num_experts": 32/"num_experts": 33' '"moe_intermediate_size": 64/"moe_intermediate_size": 96' \
    '"routed_expert_hidden_size": 64/"routed_expert_hidden_size": 32' '"kv_lora_rank": 64/"kv_lora_rank": 0' '"head_dim": 32/"head_dim": 1e9' \
    '"vt_num_hidden_layers": 27/"vt_num_hidden_layers": -3' '"vt_hidden_size": 96/"vt_hidden_size": 97' '"patch_size": 14/"patch_size": 0'; do
    edit "$change" || { failed=$((failed + 1)); echo "FAILED: $change changes nothing"; }
    expect "$change" "config.json\|tensor\|expected"
done
echo '{"media_proc_cfg": {"patch_size": 0}}' >"$tmp/m/preprocessor_config.json"
expect "preprocessor out of range" "preprocessor_config.json"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
