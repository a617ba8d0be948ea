"""Writes tests/golden/prompt/cases.json: jobs of the demo model with the prompt ids its reference recorded. The size
of a picture is read from the PNG, its rows follow from the size (kimi-k3 6.2 with the demo's limits).

    python tests/ref/prompt.py DEMO_MODEL_TESTS_DIR
"""
import json
import math
import os
import struct
import sys

OUT = "tests/golden/prompt"
PATCHES, SIDE = 100, 16


def size(path):
    with open(path, "rb") as f:
        return struct.unpack(">II", f.read(24)[16:])


def rows(w, h):
    s = min(1, math.sqrt(PATCHES / (max(1, w // 14) * max(1, h // 14))), SIDE * 14 / w, SIDE * 14 / h)
    fit = [min(max(1, int(v * s)), SIDE * 14) for v in (w, h)]
    return math.prod(-(-v // 28) for v in fit)


def main():
    folder = sys.argv[1]
    jobs = {j["custom_id"]: j for j in map(json.loads, open(f"{folder}/jobs.jsonl"))}
    answers = list(map(json.loads, open(f"{folder}/expected.jsonl")))
    cases = []
    for a in answers:
        job = jobs[a["custom_id"]]
        image = size(f"{folder}/{job['image']}") if "image" in job else None
        case = {"id": a["custom_id"], "prompt": job["prompt"], "ids": a["prompt_ids"]}
        if image:
            case.update(image=image, rows=rows(*image))
        cases.append(case)
    os.makedirs(OUT, exist_ok=True)
    with open(f"{OUT}/cases.json", "w") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, cases[::15])) + "\n]\n")


main()
