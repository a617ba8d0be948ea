"""Random small checkpoints with the published names: config.json, generation_config.json, safetensors.

Every value is drawn so that no step of the forward pass can be left out unseen, and is rounded to what the file stores
before anything computes with it. MXFP4 is packed and unpacked by compressed-tensors.
"""

import json
import math
import os
import re

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales

MXFP4 = preset_name_to_scheme("MXFP4A16", ["Linear"])
F32_TENSORS = re.compile(r"A_log|dt_bias|conv1d\.weight|\.o_norm\.weight|e_score_correction_bias")
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8"}


def draw(name, shape, g):
    """A random tensor for the parameter of this name."""
    n = torch.randn(shape, generator=g)
    u = torch.rand(shape, generator=g)
    if name.endswith("A_log"):
        return torch.log(1 + 15 * u)
    if name.endswith("dt_bias"):
        return 2 * u - 1
    if "norm" in name:
        return 1 + 0.3 * n
    if "correction_bias" in name:
        return 0.25 * n
    if "embed_tokens" in name:
        n[::5] *= 3e-3  # some rows small enough for eps to show
        return n
    if "conv1d" in name:
        return 0.6 * n
    gain = 1.2
    if "res_proj" in name or name.endswith("gate.weight"):
        gain = 1.5
    elif re.search(r"\.(w1|gate_proj)\.weight", name):
        gain = 3  # reaches the caps of SiTU
    elif re.search(r"\.(w3|up_proj)\.weight", name):
        gain = 9
    elif re.search(r"\.(w2|down_proj)\.weight", name):
        gain = 0.15
    return gain / math.sqrt(shape[-1]) * n


def shrink(weights, small):
    """small: [(pattern, first row, end row, factor)]: makes rows of some tensors so small that eps matters."""
    for pattern, first, end, factor in small:
        hit = [n for n in weights if re.search(pattern, n)]
        assert hit, pattern
        for n in hit:
            weights[n][first:end] *= factor


def pack(weight):
    groups = weight.bfloat16().unflatten(-1, (-1, 32)).abs().amax(-1)
    scale = 2.0 ** (generate_mx_scales(groups.float()).float() - 127)
    out = MXFP4PackedCompressor.compress({"weight": weight.bfloat16(), "weight_scale": scale.bfloat16()}, MXFP4)
    packed, scale = out["weight_packed"], out["weight_scale"]
    assert packed.dtype == scale.dtype == torch.uint8 and 0 < scale.min() and scale.max() < 255
    return packed, scale


def unpack(packed, scale):
    return MXFP4PackedCompressor.decompress({"weight_packed": packed, "weight_scale": scale}, MXFP4)["weight"].float()


def make(shapes, case, seed):
    """shapes: {name: shape} as the vendor's modules have them. Returns (what the witness computes with, what the file
    holds), both {name: tensor}; the second in the order of the file."""
    g = torch.Generator().manual_seed(seed)
    weights = {n: draw(n, s, g) for n, s in shapes.items()}
    shrink(weights, case.get("small", []))
    exact, stored = {}, {}
    for n, w in weights.items():
        if re.search(case["packed"], n):
            p, s = stored[n + "_packed"], stored[n + "_scale"] = pack(w)
            exact[n] = unpack(p, s)
        elif re.search(case["f32"], n):
            exact[n] = stored[n] = w
        else:
            stored[n] = w.bfloat16()
            exact[n] = stored[n].float()
    for n in [n for n in stored if n.endswith("A_log")]:
        stored[n] = case["a_log"](stored[n])
    return exact, order(stored, case.get("order", "shuffled"), g)


def order(stored, how, g):
    """Expert tensors behind the others of all layers: "shuffled": experts out of id order, each one's tensors back to
    back as w1, w2, w3; "scattered": an expert's tensors apart."""
    def key(n):
        m = re.search(r"layers\.(\d+)\..*\.experts\.(\d+)\.(w\d)\.(weight\w*)", n)
        if not m:
            return (0,)
        layer, expert, w, part = int(m[1]), int(m[2]), m[3], m[4]
        return (1, layer, w, part, rank[expert]) if how == "scattered" else (1, layer, rank[expert], w, part)

    rank = torch.randperm(4096, generator=g).tolist()
    return {n: stored[n] for n in sorted(stored, key=key)}


def write_safetensors(path, tensors, align=True):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for n, t in tensors.items():
        size = t.numel() * t.element_size()
        header[n] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    if align:
        text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(t.contiguous().flatten().view(torch.uint8).numpy().tobytes())


def write_shards(folder, tensors, shards):
    """Splits at equal numbers of tensors, wherever that falls, and writes the index."""
    names, total = list(tensors), 0
    per = -(-len(names) // shards)
    index = {}
    for i in range(shards):
        file = "model-%05d-of-%06d.safetensors" % (i + 1, shards)
        part = {n: tensors[n] for n in names[i * per:(i + 1) * per]}
        write_safetensors(os.path.join(folder, file), part, align=False)
        index.update(dict.fromkeys(part, file))
        total += sum(t.numel() * t.element_size() for t in part.values())
    dump(os.path.join(folder, "model.safetensors.index.json"),
         {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))})


def dump(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def write(folder, config, generation, stored, shards):
    os.makedirs(folder, exist_ok=True)
    for old in os.listdir(folder):
        if old.endswith((".safetensors", ".json")):
            os.remove(os.path.join(folder, old))
    dump(os.path.join(folder, "config.json"), config)
    dump(os.path.join(folder, "generation_config.json"), generation)
    if shards > 1:
        write_shards(folder, stored, shards)
    else:
        write_safetensors(os.path.join(folder, "model.safetensors"), stored)
