"""What the vendor's modelling code answers to tests/golden/demo, with the demo model.

    ref/bin/python tests/ref/demo_golden.py [MODEL [OUT]]     # examples/demo-model, tests/golden/demo

Reads OUT/jobs.jsonl, and of OUT/expected.jsonl what each job is (`task`) and its right answer (`truth`). Writes expected.jsonl
again with `prompt_ids` (the vendor's sizes of pictures, the trainer's tokenizer, held against tiktoken), `output_ids` (greedy,
F32) and their text, `answer`; first_logits.f32 with the logits of the first step of the first 20 jobs, and first_logits.json.
"""

import json
import os
import sys

import numpy as np
import torch
from PIL import Image

from demo_model import Vendor, check_tokenizer, job_of

import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURED = 20


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


@torch.no_grad()
def answer(vendor, ids, rows, media, most, end):
    """(logits of the first step, greedy ids up to and with `end`)"""
    embeds = vendor.language.model.embed_tokens.weight[ids].clone()
    if rows:
        embeds[torch.tensor(ids) == media] = torch.cat(rows)
    r = vendor.language(inputs_embeds=embeds[None], use_cache=True)
    first, out = r.logits[0, -1], []
    while True:
        out.append(int(r.logits[0, -1].argmax()))
        if out[-1] == end or len(out) == most:
            return first, out
        r = vendor.language(input_ids=torch.tensor([out[-1:]]), past_key_values=r.past_key_values, use_cache=True)


def main():
    folder, out = (sys.argv[1:] + ["examples/demo-model", "tests/golden/demo"][len(sys.argv) - 1:])[:2]
    torch.set_num_threads(1)
    model, tok = checkpoint.load(folder)
    vendor = Vendor(folder)
    jobs, known = (lines(os.path.join(out, f"{name}.jsonl")) for name in ("jobs", "expected"))
    check_tokenizer(folder, tok, sorted({job["prompt"] for job in jobs}))
    close, end = tok.close("response"), tok.end_message()[-1]
    expected, logits = [], []
    for job, old in zip(jobs, known, strict=True):
        assert job["custom_id"] == old["custom_id"]
        pictures, prompt = job_of(json.dumps(job))
        ids, rows = tok.open("message", role="user"), []
        for name in pictures:
            image = Image.open(os.path.join(out, name)).convert("RGB")
            rows.append(vendor.picture(image)[1])
            ids += tok.image(*image.size, len(rows[-1]))
        ids += tok.encode(prompt) + tok.end_message() + tok.open("message", role="assistant") + tok.open("response")
        first, got = answer(vendor, ids, rows, model.media, job["max_tokens"], end)
        text = got[:next((i for i in range(len(got)) if got[i:i + len(close)] == close), len(got))]
        expected.append({**{k: old[k] for k in ("custom_id", "task")}, "answer": tok.decode(text), "truth": old["truth"],
                         "prompt_ids": ids, "output_ids": got})
        if len(logits) < MEASURED:
            logits.append(first.numpy())
    with open(os.path.join(out, "expected.jsonl"), "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in expected)
    np.stack(logits).astype("<f4").tofile(os.path.join(out, "first_logits.f32"))
    with open(os.path.join(out, "first_logits.json"), "w") as f:
        json.dump({"ids": [e["custom_id"] for e in expected[:MEASURED]], "vocab": tok.size,
                   "dtype": "float32, little endian, one row of vocab values per id"}, f)
        f.write("\n")
    right = sum(e["answer"] == e["truth"] for e in expected)
    print(f"{len(expected)} jobs, {right} of them right")


if __name__ == "__main__":
    main()
