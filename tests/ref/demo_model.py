"""Holds an exported demo model against the vendor's modelling code, and the trainer's network against both.

    ref/bin/python tests/ref/demo_model.py MODEL [JOBS.jsonl [COUNT]]

For COUNT (12) jobs of the short or the batch form (tests/golden/demo unless given; paths of pictures relative to the file)
the prompt is made by the vendor's processor (size, patches) and the trainer's tokenizer, whose ids are held against tiktoken
with the published pattern; then logits of every position are compared between modeling_kimi_k3 + modeling_kimi_linear
reading the file, and examples/demo-model/train/model.py reading the file. F32, CPU. Exit 1 above the limits below.
"""

import base64
import json
import os
import sys

os.environ["TORCH_COMPILE_DISABLE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "examples", "demo-model", "train")]

import numpy as np
import tiktoken
import torch
from PIL import Image
from safetensors.torch import load_file

import lm_vendor
import vision

import batches
import checkpoint
from processor import cut

LIMIT = 2e-4  # relative L2 of the logits
# The published pre-tokenizer (tokenization_kimi.py).
WORD = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
PATTERN = "|".join([
    r"[\p{Han}]+",
    WORD % ("*", "+"), WORD % ("+", "*"),
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])


def job_of(line):
    """(pictures, prompt) of a line; the text of a conversation's last turn only."""
    job = json.loads(line)
    if "prompt" in job:
        return [job["image"]] if job.get("image") else [], job["prompt"]
    content = job["body"]["messages"][0]["content"]
    if isinstance(content, str):
        return [], content
    pictures = [p["image_url"]["url"] for p in content if p["type"] == "image_url"]
    return pictures, "".join(p["text"] for p in content if p["type"] == "text")


class Vendor:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
        with open(os.path.join(folder, "preprocessor_config.json")) as f:
            self.processor = json.load(f)["media_proc_cfg"]
        self.language = lm_vendor.build(config["text_config"])
        self.language.load_state_dict(lm_vendor.load(folder, lm_vendor.shapes(self.language)))
        self.tower, self.projector = vision.modules(config["vision_config"])
        held = load_file(os.path.join(folder, "model.safetensors"))
        for prefix, module in (("vision_tower.", self.tower), ("mm_projector.", self.projector)):
            module.load_state_dict({n: held[prefix + n].float() for n in module.state_dict()})

    def picture(self, image):
        """(pixels resized, image rows) by the vendor's own steps."""
        r = vision.sizes(*image.size, self.processor)
        pixels = np.asarray(image.resize((r["new_width"], r["new_height"]), Image.BICUBIC))
        return pixels, vision.answers(self.tower, self.projector, pixels, self.processor, r)[2]

    @torch.no_grad()
    def logits(self, ids, rows, media):
        embeds = self.language.model.embed_tokens.weight[ids].clone()
        if rows:
            embeds[torch.tensor(ids) == media] = torch.cat(rows)
        return self.language(inputs_embeds=embeds[None]).logits[0]


@torch.no_grad()
def own_rows(model, pixels):
    height, width = pixels.shape[:2]
    rows, columns = -(-height // 28) * 2, -(-width // 28) * 2
    p = batches.pack_pictures([(cut(pixels, rows, columns), np.zeros((rows * columns, 4), np.uint8), rows, columns)])
    out, real = model.see(p["pixels"], p["places"], p["grids"])
    return out[real]


def relative(a, b):
    return float((a - b).norm() / b.norm())


def check_tokenizer(folder, tok, texts):
    with open(os.path.join(folder, "tiktoken.model"), "rb") as f:
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in f if line.strip())}
    other = tiktoken.Encoding("demo", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    for text in texts:
        assert tok.encode(text) == other.encode_ordinary(text), text
    print(f"{len(texts)} texts have tiktoken's ids")


def main():
    folder = sys.argv[1]
    path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "..", "golden", "demo", "jobs.jsonl")
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    with open(path) as f:
        jobs = [job_of(line) for line in f]
    torch.set_num_threads(1)
    model, tok = checkpoint.load(folder)
    vendor, worst = Vendor(folder), [0.0, 0.0]
    check_tokenizer(folder, tok, sorted({prompt for _, prompt in jobs}))
    for pictures, prompt in jobs[::max(1, len(jobs) // count)][:count]:
        ids, theirs, ours = tok.open("message", role="user"), [], []
        for name in pictures:
            image = Image.open(os.path.join(os.path.dirname(path), name)).convert("RGB")
            pixels, rows = vendor.picture(image)
            theirs.append(rows)
            ours.append(own_rows(model, pixels))
            assert theirs[-1].shape == ours[-1].shape
            ids += tok.image(*image.size, len(ours[-1]))
            worst[0] = max(worst[0], relative(ours[-1], theirs[-1]))
        ids += tok.encode(prompt) + tok.end_message() + tok.open("message", role="assistant") + tok.open("response")
        want = vendor.logits(ids, theirs, model.media)
        with torch.no_grad():
            got = model.logits(model.read(torch.tensor([ids]), torch.cat(ours) if ours else None))
        assert torch.equal(got[-1].argmax(), want[-1].argmax()), prompt
        worst[1] = max(worst[1], relative(got, want))
    print(f"{count} jobs: image rows differ by {worst[0]:.1e}, logits by {worst[1]:.1e}, first answers agree")
    raise SystemExit(worst[1] > LIMIT)


if __name__ == "__main__":
    main()
