"""Writes tests/golden/mxfp4/cases.bin: packed MXFP4 matrices as compressed-tensors decompresses them.

Every byte value meets every scale from 2^-127 to 2^127. The last row has the vectors of kimi-k3 Appendix A.3: group 0
is 0x2F at scale byte 127, group 1 is 0xB7 at scale byte 120.

Format, little endian: u32 rows, u32 columns; packed [rows][columns / 2]; scales [rows][columns / 32]; BF16 weights
[rows][columns].

    python tests/ref/mxfp4.py
"""
import os
import struct

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

OUT = "tests/golden/mxfp4"
ROWS, COLUMNS = 17, 512

torch.manual_seed(7)
packed = torch.stack([torch.randperm(256) for _ in range(ROWS)]).to(torch.uint8)
scale = (torch.arange(ROWS * COLUMNS // 32) % 255).reshape(ROWS, -1).to(torch.uint8)
packed[-1, 0:16], scale[-1, 0] = 0x2F, 127
packed[-1, 16:32], scale[-1, 1] = 0xB7, 120
args = QuantizationArgs(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False,
                        scale_dtype=torch.uint8)
weight = MXFP4PackedCompressor.decompress({"weight_packed": packed, "weight_scale": scale},
                                          QuantizationScheme(targets=["Linear"], weights=args))["weight"]
assert weight.dtype == torch.bfloat16 and weight.shape == (ROWS, COLUMNS)
os.makedirs(OUT, exist_ok=True)
with open(os.path.join(OUT, "cases.bin"), "wb") as f:
    f.write(struct.pack("<II", ROWS, COLUMNS))
    f.write(packed.numpy().tobytes() + scale.numpy().tobytes() + weight.view(torch.int16).numpy().tobytes())
