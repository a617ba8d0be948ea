"""The picture processor of the model: what size a picture is brought to, and how it is cut into patches.

Sizes follow the published processor (kimi_k3_vision_processing.py, media_utils.navit_resize_image): never enlarged, at most
PATCH_LIMIT patches before padding and SIDE_LIMIT patches on one side, padded on the right and bottom to whole cells of 2 x 2
patches.
"""

import math

import numpy as np

PATCH = 14
CELL = 2 * PATCH
PATCH_LIMIT = 144
SIDE_LIMIT = 24


def fit(width, height):
    """(width, height) after the resize, before padding."""
    scale = min(
        1.0,
        math.sqrt(PATCH_LIMIT / (max(1, width // PATCH) * max(1, height // PATCH))),
        SIDE_LIMIT * PATCH / width,
        SIDE_LIMIT * PATCH / height,
    )
    return tuple(min(max(1, int(side * scale)), SIDE_LIMIT * PATCH) for side in (width, height))


def grid(width, height):
    """(rows, columns) of patches for a picture of this size after the resize; both are even."""
    return -(-height // CELL) * 2, -(-width // CELL) * 2


def patch_order(rows, columns):
    """Places [rows * columns][2] (row, column), the four patches of one cell behind each other.

    The tower gives every patch its place explicitly, so any order is right, and in this one the 2 x 2 merge is a reshape.
    """
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    places = np.stack([y, x], -1).reshape(rows // 2, 2, columns // 2, 2, 2)
    return places.transpose(0, 2, 1, 3, 4).reshape(-1, 2).astype(np.int16)


def cut(plane, rows, columns):
    """plane [height][width] or [height][width][channels], padded with 0 and cut: [patches][channels * 14 * 14], uint8."""
    if plane.ndim == 2:
        plane = plane[:, :, None]
    height, width, channels = plane.shape
    padded = np.zeros((rows * PATCH, columns * PATCH, channels), np.uint8)
    padded[:height, :width] = plane
    cells = padded.reshape(rows // 2, 2, PATCH, columns // 2, 2, PATCH, channels)
    return np.ascontiguousarray(cells.transpose(0, 3, 1, 4, 6, 2, 5)).reshape(rows * columns, channels * PATCH * PATCH)
