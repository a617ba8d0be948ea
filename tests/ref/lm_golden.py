"""Writes the language model fixtures: one folder per case under OUT, from published implementations.

    python lm_golden.py OUT [CASE...]

K3-shaped cases come from the vendor's code (lm_vendor.py); Kimi-Linear-shaped ones from transformers' own
implementation reading the written checkpoint, checked against the vendor's. Deterministic: a case is its seed, moved on
until no token comes close to a router tie.
"""

import inspect
import os
import sys

import torch

import lm_checkpoint as ck
import lm_vendor
from lm_cases import CASES

MIN_MARGIN = 2e-4


def rel(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def prompt(case, text, weights, g):
    """ids with the pad id where image rows go, and the input rows."""
    ids = torch.randint(0, text["vocab_size"] - 8, (case["tokens"],), generator=g)
    ids[::6] = ids[::6] // 5 * 5  # rows of the embedding that are small
    out = {}
    spans = case.get("images", [])
    for first, n in spans:
        ids[first:first + n] = case["config"]["media_placeholder_token_id"]
    embeds = weights["model.embed_tokens.weight"][ids].clone()
    if spans:
        rows = torch.randn(sum(n for _, n in spans), text["hidden_size"], generator=g)
        embeds[torch.cat([torch.arange(f, f + n) for f, n in spans])] = rows
        out = {"image_rows": rows, "image_first": torch.tensor([float(f) for f, _ in spans]),
               "image_count": torch.tensor([float(n) for _, n in spans])}
    return embeds, {"ids": ids.float(), **out, "embed": embeds}


def attempt(case, seed):
    text = case["config"].get("text_config", case["config"])
    model = lm_vendor.build(text)
    weights, stored = ck.make(lm_vendor.shapes(model), case, seed)
    model.load_state_dict(weights)
    embeds, golden = prompt(case, text, weights, torch.Generator().manual_seed(seed + 1))
    recorded, margin = lm_vendor.run(model, embeds)
    golden.update(recorded)
    return model, weights, stored, golden, margin


def find(case):
    for seed in range(case["seed"] * 1000, case["seed"] * 1000 + 100):
        model, weights, stored, golden, margin = attempt(case, seed)
        if margin > MIN_MARGIN:
            return model, weights, stored, golden, margin, seed
    raise SystemExit("no seed with a margin")


def check_transformers(folder, golden):
    """Another implementation, reading the files just written, must agree; its logits become the golden ones."""
    import transformers.models.kimi_linear.modeling_kimi_linear as other
    for n in ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention", "causal_conv1d_fn",
              "causal_conv1d_update"):
        setattr(other, n, inspect.unwrap(getattr(other, n)))  # its torch version, not the GPU kernel
    model = other.KimiLinearForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=golden["ids"].long()[None]).logits[0]
    d = rel(golden["logits"], logits)
    assert d < 2e-5, d
    golden["logits"] = logits
    return d


def write_case(out, name, case):
    model, weights, stored, golden, margin, seed = find(case)
    folder = os.path.join(out, name)
    prefix = case["prefix"]
    stored = {prefix + n: t for n, t in stored.items()}
    ck.write(folder, case["config"], case["generation"], stored, case.get("shards", 1))
    steps = rel(lm_vendor.run_stepwise(model, golden["embed"], len(golden["embed"]) // 2), golden["logits"])
    assert steps < 1e-4, steps
    other = "" if prefix else ", transformers differs by %.1e" % check_transformers(folder, golden)
    ck.write_safetensors(os.path.join(folder, "golden.safetensors"), golden)
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name}: seed {seed}, margin {margin:.1e}, one at a time differs by {steps:.1e}{other}, {size} bytes",
          flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:] or CASES:
        write_case(sys.argv[1], name, CASES[name])
