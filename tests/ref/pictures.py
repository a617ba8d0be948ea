"""The table of odd picture files: writes each file, what must come of it, and the pixels that the vendor's processor
(Pillow underneath) makes of it.

    ref/bin/python tests/ref/pictures.py tests/golden/pictures vision/README.md tests/fuzz/corpus/image

Outcomes are written by hand here. The script checks that Pillow agrees: where pixels are expected, Pillow's are the
reference; where an error is expected, the matrix says what Pillow does. table.tsv: name, code, words of the message, format,
width, height, orientation, frames, warnings, code when lenient, words then. pictures.safetensors: NAME.file, the file's
bytes; NAME.full and NAME.small [height][width][3], unscaled and scaled to two patches. The matrix in the README is replaced between its markers; some files become seeds of the fuzz target,
which reads one byte of switches first.
"""

import io
import os
import re
import sys
import warnings

import numpy as np
import torch
from llmcompressor.modeling.kimi_k3 import media_utils
from PIL import Image, ImageOps
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(__file__))
from pictures_list import CASES  # noqa: E402

BACKGROUND = media_utils.TransparentBgConfig("chessboard", 8, True, 255, 180)
COLUMNS = ("name", "code", "words", "format", "width", "height", "orientation", "frames", "warnings", "lenient",
           "lenient_words")


def processed(im, limit):
    """The vendor's resized pixels without padding."""
    r = media_utils.navit_resize_image(*im.size, 14, 2, limit, 512, None)
    return media_utils.image_to_np(im, (r["new_width"], r["new_height"]), "resize", transparent_bg_config=BACKGROUND,
                                   transparent_bg_fill_stage="after_resize")


def pillow(data):
    """(picture or None, what happened)"""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            im = Image.open(io.BytesIO(data))
            form = im.format
            im.load()
            im = ImageOps.exif_transpose(im)
        return im, f"reads {form} {im.mode}"
    except Exception as e:  # noqa: BLE001  (whatever Pillow raises is its answer)
        return None, "refuses: " + re.sub(r"<_io.*?>", "it", str(e)).split("\n")[0][:60]


def row_of(case):
    im, said = pillow(case.data)
    pixels = {}
    row = dict.fromkeys(COLUMNS, "")
    row.update(name=case.name, code=case.code, words=case.words, lenient=case.lenient or case.code,
               lenient_words=case.lenient_words)
    if case.code == "ok":
        if case.reference is not None:
            im = case.reference
            said += ", other pixels" if case.other_pixels else ""
        assert im is not None, (case.name, said)
        row.update(format=case.format, width=im.width, height=im.height, orientation=case.orientation,
                   frames=case.frames, warnings="; ".join(case.warnings))
        pixels = {"full": processed(im, 65536), "small": processed(im, 2)}
    return row, said, pixels


def matrix(rows):
    out = ["| file | outcome | Pillow 13 |", "|---|---|---|"]
    for row, said, _ in rows:
        outcome = f"{row['width']} x {row['height']}" if row["code"] == "ok" else f"`{row['code']}`: {row['words']}"
        if row["warnings"]:
            outcome += f"; warns: {row['warnings']}"
        if row["lenient"] != row["code"]:
            outcome += "; lenient: " + ("shown, warns" if row["lenient"] == "ok" else f"`{row['lenient']}`")
        out.append(f"| {row['name']} | {outcome} | {said} |".replace("\n", " "))
    return out


def replace_matrix(path, lines):
    with open(path) as f:
        text = f.read()
    begin, end = "<!-- matrix -->", "<!-- end of matrix -->"
    head, rest = text.split(begin)
    with open(path, "w") as f:
        f.write(head + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


SEEDS = """baseline_420.jpg progressive.jpg grey.jpg ycck.jpg arithmetic.jpg scans.jpg restart.jpg exif_6.jpg icc.jpg
cut_half.jpg grey_1.png grey_16_trns.png palette_trns.png interlaced_rgba_16.png exif_behind_8.png apng.png cut_stream.png
clear.gif interlaced.gif animated.gif large_frame.gif grey_clear.gif rle8_delta.bmp rle4.bmp alpha_v5_rgba.bmp fields_565.bmp
os2_8.bmp bits_1.bmp lossy_alpha.webp lossless.webp first_frame_alpha.webp exif_named.webp photo.cr2 drawing.svg""".split()


def write_seeds(folder):
    os.makedirs(folder, exist_ok=True)
    files = {c.name: c.data for c in CASES}
    for name in SEEDS:
        with open(os.path.join(folder, name), "wb") as f:
            f.write(b"\0" + files[name])


def main(folder, readme, seeds):
    os.makedirs(folder, exist_ok=True)
    rows, tensors = [], {}
    for case in CASES:
        row, said, px = row_of(case)
        rows.append((row, said, px))
        for what, a in {"file": np.frombuffer(case.data, np.uint8), **px}.items():
            tensors[f"{case.name}.{what}"] = torch.from_numpy(a.copy())
    assert len({r[0]["name"] for r in rows}) == len(rows)
    with open(os.path.join(folder, "table.tsv"), "w") as f:
        f.writelines("\t".join(str(r[0][c]) for c in COLUMNS) + "\n" for r in rows)
    save_file(tensors, os.path.join(folder, "pictures.safetensors"))
    replace_matrix(readme, matrix(rows))
    write_seeds(seeds)
    print(len(rows), "files,", sum(len(c.data) for c in CASES), "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
