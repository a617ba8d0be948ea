"""Pillow's resampling of small random pictures in each mode.

    ref/bin/python tests/ref/pillow_resize.py tests/golden/resize

resized.safetensors: in.N, bicubic.N, nearest.N, all U8 [height][width][channels], and mode.N, the place in CHANNELS from 1. The order of the two passes is that of
Pillow 13.
"""

import os
import sys

import numpy as np
import PIL
import torch
from PIL import Image
from safetensors.torch import save_file

CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}
SIZES = [
    ((40, 30), (20, 15)), ((41, 29), (17, 23)), ((37, 31), (36, 30)), ((9, 7), (23, 19)), ((30, 8), (11, 8)),
    ((8, 30), (8, 11)), ((8, 30), (15, 30)), ((60, 3), (7, 2)), ((3, 60), (2, 7)), ((5, 90), (4, 30)), ((1, 1), (6, 5)),
    ((50, 1), (1, 1)), ((1, 50), (1, 3)), ((33, 17), (33, 17)), ((12, 70), (30, 9)),
]


def main(folder):
    assert int(PIL.__version__.split(".")[0]) >= 13
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(11)
    out, n = {}, 0
    for k, (size, to) in enumerate(SIZES):
        for mode in list(CHANNELS)[k % 2 :: 2]:
            a = rng.integers(0, 256, (size[1], size[0], CHANNELS[mode]), dtype=np.uint8)
            if k % 3 == 0:
                a = (a > 128).astype(np.uint8) * 255  # overshoots on both sides
            im = Image.frombytes(mode, size, a.tobytes())
            shape = (to[1], to[0], CHANNELS[mode])
            for name, data in (("in", a), ("bicubic", np.array(im.resize(to, Image.Resampling.BICUBIC)).reshape(shape)),
                               ("nearest", np.array(im.resize(to, Image.Resampling.NEAREST)).reshape(shape))):
                out[f"{name}.{n}"] = torch.from_numpy(data.copy())
            out[f"mode.{n}"] = torch.tensor([list(CHANNELS).index(mode) + 1], dtype=torch.uint8)
            n += 1
    save_file(out, os.path.join(folder, "resized.safetensors"))
    print(n, "pictures")


if __name__ == "__main__":
    main(sys.argv[1])
