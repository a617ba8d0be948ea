"""Golden answers for the tower and the projector: the vendor's modelling and preprocessing code, as llmcompressor carries
it, on random small checkpoints.

    ref/bin/python tests/ref/vision.py tests/golden

Writes tests/golden/vision_NAME: config.json, preprocessor_config.json, model.safetensors, and want/vision.safetensors with,
for picture N: pixels.N [height][width][3], embed.N, tower.N [patches][hidden] (before and after all
blocks), rows.N [rows][out]; of small pictures also png.N, a file of the same pixels. F32, one thread.
"""

import io
import json
import os
import re
import sys

os.environ["TORCH_COMPILE_DISABLE"] = "1"

import numpy as np
import torch
from llmcompressor.modeling.kimi_k3 import media_utils
from llmcompressor.modeling.kimi_k3.configuration_kimi_k3 import KimiK3VisionConfig
from llmcompressor.modeling.kimi_k3.modeling_kimi_k3 import (
    MoonViT3dPretrainedModel,
    PatchMergerMLPV2,
    ProjectorConfig,
    VisionTowerConfig,
)
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(__file__))
import lm_checkpoint

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

BASE = {
    "vt_hidden_size": 32, "qkv_hidden_size": 48, "vt_num_attention_heads": 3, "vt_num_hidden_layers": 2,
    "vt_intermediate_size": 64, "norm_type": "rmsnorm", "mlp_type": "mlp2", "activation_func": "gelu_pytorch_tanh",
    "attn_bias": False, "linear_bias": False, "patch_embed_proj_bias": False, "projector_hidden_act": "gelu",
    "patch_size": 14, "init_pos_emb_height": 8, "init_pos_emb_width": 8, "init_pos_emb_time": 4,
    "pos_emb_type": "divided_fixed", "pos_emb_interpolation_mode": "bilinear", "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool", "mm_projector_type": "patchmergerv2", "mm_hidden_size": 32, "text_hidden_size": 40,
    "projector_ln_eps": 1e-5,
}
# Sizes are in pixels, width first. One cell; 2 x 6 and 10 x 4 patches; one as large as the table; odd padding; more patches
# than one block of keys.
CASES = {
    "bf16": {"seed": 1, "pictures": [(1, 1), (28, 84), (140, 50), (112, 112), (250, 253)]},
    "f32": {
        "seed": 2, "dtype": torch.float32, "pictures": [(14, 14), (42, 14), (69, 30), (133, 126)],
        "config": {"vt_hidden_size": 24, "mm_hidden_size": 24, "qkv_hidden_size": 24, "vt_num_attention_heads": 2,
                   "vt_num_hidden_layers": 3, "patch_size": 7, "init_pos_emb_height": 3, "init_pos_emb_width": 6,
                   "text_hidden_size": 17},
        "mean": [0.25, 0.5, 0.75], "std": [0.5, 0.25, 1.0],
    },
    "bicubic": {"seed": 3, "pictures": [(28, 28), (70, 170), (112, 112)],
                "config": {"pos_emb_interpolation_mode": "bicubic", "init_pos_emb_height": 5}},
    "mxfp4": {"seed": 4, "pictures": [(84, 56)], "packed": r"(wqkv|fc0|fc1|proj\.0|proj\.2)\.weight$",
              "config": {"qkv_hidden_size": 64, "vt_num_attention_heads": 4}},
    # So small that the eps of the norms decides.
    "eps": {"seed": 5, "pictures": [(56, 28)], "small": 2e-4},
}


def modules(config):
    c = KimiK3VisionConfig(**config)
    c._attn_implementation = "eager"
    tower = MoonViT3dPretrainedModel(VisionTowerConfig(c))
    tower.config._attn_implementation = "eager"
    projector = PatchMergerMLPV2(ProjectorConfig(c))
    return tower.eval().float(), projector.eval().float()


def draw(name, shape, g):
    n = torch.randn(shape, generator=g)
    if "norm" in name:
        return 1 + 0.3 * n
    if "pos_emb" in name:
        return 0.7 * n
    gain = 3.0 if "wqkv" in name else 1.0
    return gain / np.sqrt(np.prod(shape[1:])) * n


def weights(tower, projector, case):
    """(exact values, what the file holds)"""
    g = torch.Generator().manual_seed(case["seed"])
    named = [("vision_tower." + n, p) for n, p in tower.named_parameters()]
    named += [("mm_projector." + n, p) for n, p in projector.named_parameters()]
    dtype = case.get("dtype", torch.bfloat16)
    stored = {}
    for name, p in named:
        w = draw(name, tuple(p.shape), g)
        if "small" in case and "patch_embed" in name:
            w *= case["small"]
        if "small" in case and "proj.2" in name:
            w *= 20 * case["small"]
        if "packed" in case and re.search(case["packed"], name):
            packed, scale = lm_checkpoint.pack(w)
            stored[name + "_packed"], stored[name + "_scale"] = packed, scale
            exact = lm_checkpoint.unpack(packed, scale)
        else:
            stored[name] = w.to(dtype)
            exact = stored[name].float()
        p.data.copy_(exact)
    return stored


def preprocessor(case, config):
    return {"media_proc_cfg": {
        "in_patch_limit": 1024, "patch_size": config["patch_size"], "merge_kernel_size": 2,
        "image_mean": case.get("mean", [0.5] * 3), "image_std": case.get("std", [0.5] * 3),
        "fixed_output_tokens": None, "patch_limit_on_one_side": 64,
        "transparent_bg_config": {"pattern": "chessboard", "chessboard_square_size": 8,
                                  "chessboard_square_on_top_left": True, "chessboard_white_value": 255,
                                  "chessboard_gray_value": 180},
        "transparent_bg_fill_stage": "after_resize"}}


def picture(size, rng):
    """Noise on a slope, so that no two places look alike."""
    w, h = size
    y, x = np.mgrid[0:h, 0:w]
    slope = np.stack([x * 200 / max(w, 2), y * 200 / max(h, 2), (x + y) * 100 / max(w + h, 2)], -1)
    return (slope + rng.integers(0, 56, (h, w, 3))).astype(np.uint8)


def sizes(width, height, proc):
    """How a picture is resized and padded, by the vendor's code."""
    return media_utils.navit_resize_image(width, height, proc["patch_size"], 2, proc["in_patch_limit"],
                                          proc["patch_limit_on_one_side"], None)


def answers(tower, projector, pixels, proc, r=None):
    """pixels: resized already; r: what `sizes` gave for the picture before that."""
    h, w = pixels.shape[:2]
    r = r or sizes(w, h, proc)
    assert (r["new_width"], r["new_height"]) == (w, h)
    padded = np.pad(pixels, ((0, r["pad_height"]), (0, r["pad_width"]), (0, 0)))[None]
    norm = media_utils.normalize(padded, np.array(proc["image_mean"]), 1.0 / np.array(proc["image_std"]))
    cut = media_utils.navit_patchify(norm, proc["patch_size"])
    grid = torch.tensor(cut["grid_thw"])[None]
    x = torch.from_numpy(cut["pixel_values"])
    with torch.no_grad():
        embed = tower.patch_embed(x, grid)
        encoded = tower.encoder(embed, grid)
        rows = projector(tower(x, grid))[0]
    return embed, encoded, rows


def main(out):
    for name, case in CASES.items():
        config = {**BASE, **case.get("config", {})}
        tower, projector = modules(config)
        stored = weights(tower, projector, case)
        proc = preprocessor(case, config)
        folder = os.path.join(out, "vision_" + name)
        os.makedirs(os.path.join(folder, "want"), exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump({"model_type": "kimi_k3", "vision_config": config}, f, indent=1)
        with open(os.path.join(folder, "preprocessor_config.json"), "w") as f:
            json.dump(proc, f, indent=1)
        save_file(stored, os.path.join(folder, "model.safetensors"))
        rng = np.random.default_rng(case["seed"])
        want = {}
        for n, size in enumerate(case["pictures"]):
            pixels = picture(size, rng)
            embed, tower_out, rows = answers(tower, projector, pixels, proc["media_proc_cfg"])
            if pixels.size < 20000:
                file = io.BytesIO()
                Image.fromarray(pixels).save(file, "PNG", optimize=True)
                want[f"png.{n}"] = torch.from_numpy(np.frombuffer(file.getvalue(), np.uint8).copy())
            want[f"pixels.{n}"] = torch.from_numpy(pixels)
            want[f"embed.{n}"], want[f"tower.{n}"], want[f"rows.{n}"] = (
                t.contiguous() for t in (embed, tower_out, rows))
        save_file(want, os.path.join(folder, "want", "vision.safetensors"))
        print(folder, sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs))


if __name__ == "__main__":
    main(sys.argv[1])
