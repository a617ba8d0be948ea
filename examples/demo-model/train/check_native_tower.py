"""Compares the tower's kernels (native_tower) with plain torch in F32: python3 check_native_tower.py

Random pictures of all shapes, every weight's gradient. The kernels compute in bf16, as does plain torch when it trains: the
bounds are some times what bf16 costs plain torch here, which is shown beside."""

import sys

import torch

import native
import processor
from model import Config, Demo

ROWS, COSINE, SIZE = 0.03, 0.999, 0.02  # error of the image rows, of gradients: direction and length
GRIDS = (2, 2), (2, 6), (4, 4), (8, 10), (12, 14), (2, 26), (14, 14), (10, 20), (6, 2)


def pictures(grids):
    longest = max(r * c for r, c in grids) + 8
    pixels = torch.randint(0, 256, (len(grids), longest, 588), dtype=torch.uint8)
    places = torch.zeros(len(grids), longest, 2, dtype=torch.int16)
    for i, (rows, columns) in enumerate(grids):
        places[i, :rows * columns] = torch.from_numpy(processor.patch_order(rows, columns))
        shade = torch.randint(0, 256, (rows * columns, 1))  # noise alone would make all patches alike
        pixels[i, :rows * columns] = (pixels[i, :rows * columns] // 4 + shade * 3 // 4).to(torch.uint8)
    return pixels, places, torch.tensor(grids)


def run(model, batch, weight, kernels, dtype):
    before = native.set(kernels)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        rows, real = model.see(*batch)
    native.set(before)
    rows = rows[real].float()
    (rows * weight).sum().backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return rows.detach(), grads


def differences(found, expected):
    """Error of the rows; per weight the cosine and the length's error of its gradient."""
    rows = float((found[0] - expected[0]).norm() / expected[0].norm())
    assert found[1].keys() == expected[1].keys()
    each = {}
    for name, right in expected[1].items():
        mine = found[1][name]
        each[name] = (float(torch.cosine_similarity(mine.flatten(), right.flatten(), 0)), float(mine.norm() / right.norm() - 1))
    return rows, each


def main():
    if not native.enabled():
        sys.exit("the kernels are off")
    torch.manual_seed(3)
    model = Demo(Config(), 1, 2)
    for name, p in model.named_parameters():
        if "norm" in name:  # ones would hide where a norm's weight belongs
            p.data.mul_(torch.empty_like(p).uniform_(0.5, 1.5))
    batch = pictures(GRIDS)
    weight = torch.randn(sum(r * c // 4 for r, c in GRIDS), model.c.hidden)
    right = run(model, batch, weight, False, torch.float32)
    failed = False
    for kind, kernels in (("torch in bf16", False), ("kernels", True)):
        rows, each = differences(run(model, batch, weight, kernels, torch.bfloat16), right)
        by_cosine, by_size = min(each, key=lambda n: each[n][0]), max(each, key=lambda n: abs(each[n][1]))
        print(f"{kind}: rows differ by {rows:.4f}; gradients of {len(each)} weights: least cosine {each[by_cosine][0]:.5f} "
              f"({by_cosine}), length {each[by_size][1]:+.4f} ({by_size})")
        if kernels:
            # not (a < b): what is no number fails as well
            wrong = [n for n, (cosine, size) in each.items() if not (cosine > COSINE and abs(size) < SIZE)]
            failed = bool(wrong) or not rows < ROWS
            for name in wrong[:10]:
                print("  wrong:", name, *each[name])
    if failed:
        sys.exit("FAILED")
    print(f"within {ROWS} of the rows, cosine {COSINE}, length {SIZE}")


if __name__ == "__main__":
    main()
