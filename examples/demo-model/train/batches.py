"""Batches of lessons, made by worker processes. Batch number i of a seed is always the same, whoever makes it."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import dialogue
import draw
import scenes
from processor import patch_order

MULTIPLE = 8  # rows are padded to a multiple of it


def pad(length):
    return -(-length // MULTIPLE) * MULTIPLE


def pack_pictures(pictures):
    """pictures: what draw.seen gives. Patches of all, padded to the longest one:
    pixels [n][patches][588], labels [n][patches][4], places [n][patches][2], grids [n][2] (rows, columns)."""
    longest = pad(max(len(p[0]) for p in pictures))
    n = len(pictures)
    out = {
        "pixels": np.zeros((n, longest, pictures[0][0].shape[1]), np.uint8),
        "labels": np.zeros((n, longest, 4), np.uint8),
        "places": np.zeros((n, longest, 2), np.int16),
        "grids": np.array([p[2:] for p in pictures], np.int64),
    }
    for i, (pixels, labels, rows, columns) in enumerate(pictures):
        out["pixels"][i, :len(pixels)] = pixels
        out["labels"][i, :len(labels)] = labels
        out["places"][i, :len(pixels)] = patch_order(rows, columns)
    return {k: torch.from_numpy(v) for k, v in out.items()}


def pack_text(tok, rows):
    """ids and mask [rows][longest]."""
    longest = pad(max(len(ids) for ids, _ in rows))
    ids = torch.full((len(rows), longest), tok.special["[PAD]"])
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, (row, answers) in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
        mask[i, :len(row)] = torch.tensor(answers, dtype=torch.bool)
    return {"ids": ids, "mask": mask}


def lessons(tok, rng, dialogues):
    batch = pack_text(tok, [dialogue.encode(tok, d) for d in dialogues])
    pictures = [draw.seen(scene, rng) for d in dialogues for scene in d.scenes]
    return batch | (pack_pictures(pictures) if pictures else {})


def easy_scene(rng, progress):
    """The first lessons of the tower: large dark things on white, fading over the first third."""
    hardest = min(1.0, 3 * progress)
    easy = rng.choices((2, 1, 0), (0.8 * (1 - hardest), 0.6 * hardest * (1 - hardest), 0.2 + 0.8 * hardest))[0]
    kind = rng.random()
    if kind < 0.58:
        return scenes.shapes(rng, rng.choice((2, 3, 4, 4)), easy)
    if kind < 0.86:
        return scenes.text(rng, easy)
    return scenes.flag(rng) if kind < 0.93 else scenes.chart(rng, easy)


def sight(tok, rng, progress, size):
    """For the tower alone: pictures with labels, and text jobs for the trunk, which has no pictures yet."""
    pictures = [draw.seen(easy_scene(rng, progress), rng) for _ in range(size)]
    texts = [dialogue.encode(tok, dialogue.without_picture(rng)) for _ in range(max(2, size // 6))]
    return pack_text(tok, texts) | pack_pictures(pictures)


class Lessons(IterableDataset):
    """Batches `first`, first + 1, ...; plan.at(i) gives (stage, progress within it) for batch i."""

    def __init__(self, tok, plan, seed, first, size):
        self.tok, self.plan, self.seed, self.first, self.size = tok, plan, seed, first, size

    def make(self, number):
        rng = random.Random(f"{self.seed} {number}")
        stage, progress = self.plan.at(number)
        if stage == "sight":
            return sight(self.tok, rng, progress, self.size)
        counts = (1, 1, 2) if progress < 0.05 else (1, 2, 2, 3, 3, 4, 4, 5, 6)
        return lessons(self.tok, rng, [dialogue.lesson(rng, counts) for _ in range(self.size)])

    def __iter__(self):
        info = get_worker_info()
        mine, step = (info.id, info.num_workers) if info else (0, 1)
        number = self.first + mine
        while True:
            yield self.make(number)
            number += step


def loader(tok, plan, seed, first, size, workers, pin):
    return DataLoader(Lessons(tok, plan, seed, first, size), batch_size=None, num_workers=workers,
                      prefetch_factor=2 if workers else None, pin_memory=pin)
