"""Batches of lessons. Batch number i of a seed is always the same, whoever makes it: each of its lessons has a random generator
of its own. Several processes that learn together deal its lessons out by size, so that they have about equal work."""

import random
import signal

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import dialogue
import draw
import scenes
from processor import fit, grid, patch_order

MULTIPLE = 8  # rows are padded to a multiple of it


def pad(length):
    return -(-length // MULTIPLE) * MULTIPLE


def pack_pictures(pictures):
    """pictures: what draw.seen gives. Patches of all, padded to the longest one:
    pixels [n][patches][588], labels [n][patches][5], places [n][patches][2], grids [n][2] (rows, columns)."""
    longest = pad(max(len(p[0]) for p in pictures))
    n = len(pictures)
    out = {
        "pixels": np.zeros((n, longest, pictures[0][0].shape[1]), np.uint8),
        "labels": np.zeros((n, longest, pictures[0][1].shape[1]), np.uint8),
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


def shows(labels):
    """Which patches show something, in either half."""
    return (labels[..., :2] > 0).any(-1)


def count(batch):
    """Adds what losses are divided by: answer ids, and patches by weight (1 where something is shown, else a quarter); and the
    number of pictures."""
    patches = 0.0
    if "labels" in batch:
        patches = 0.25 * float(batch["grids"].prod(1).sum()) + 0.75 * float(shows(batch["labels"]).sum())
    counts = [int(batch["mask"].sum()), patches, len(batch.get("grids", ()))]
    return batch | {"counts": torch.tensor(counts, dtype=torch.float64)}


def patches(scene):
    rows, columns = grid(*fit(*scene.source))
    return rows * columns


def dealt(sizes, rank, ranks):
    """The numbers that one of several gets: the largest go to 0, 1, 2, the next to 2, 1, 0, and so on."""
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    turn = [*range(ranks), *reversed(range(ranks))]
    return sorted(i for place, i in enumerate(order) if turn[place % len(turn)] == rank)


def lessons(tok, made, rank=0, ranks=1):
    """made: [(dialogue, its random generator)], of which this process takes its part."""
    rows = [dialogue.encode(tok, d) for d, _ in made]
    # The work of a patch in the tower is about that of an id in the text layers.
    mine = dealt([len(row[0]) + sum(map(patches, d.scenes)) for row, (d, _) in zip(rows, made)], rank, ranks)
    pictures = [draw.seen(scene, made[i][1]) for i in mine for scene in made[i][0].scenes]
    return count(pack_text(tok, [rows[i] for i in mine]) | (pack_pictures(pictures) if pictures else {}))


def easy_scene(rng, progress):
    """The first lessons of the tower: large dark things on white, fading over the first third."""
    hardest = min(1.0, 3 * progress)
    easy = rng.choices((2, 1, 0), (0.8 * (1 - hardest), 0.6 * hardest * (1 - hardest), 0.2 + 0.8 * hardest))[0]
    kind = rng.random()
    if kind < 0.4:
        return scenes.shapes(rng, rng.choice((2, 4, 6, 9)), easy)
    if kind < 0.82:
        return scenes.text(rng, easy) if kind < 0.52 or easy else scenes.page(rng)
    return scenes.flag(rng) if kind < 0.9 else scenes.chart(rng, easy)


def texts_beside(size):
    return max(2, size // 6)


def sight(tok, rngs, progress, size, rank=0, ranks=1):
    """For the tower alone: pictures with labels, and text jobs for the trunk, which has no pictures yet."""
    shown = [(easy_scene(rng, progress), rng) for rng in rngs[:size]]
    texts = [dialogue.encode(tok, dialogue.without_picture(rng)) for rng in rngs[size:]]
    pictures = [draw.seen(*shown[i]) for i in dealt([patches(scene) for scene, _ in shown], rank, ranks)]
    mine = dealt([len(ids) for ids, _ in texts], ranks - 1 - rank, ranks)
    return count(pack_text(tok, [texts[i] for i in mine]) | pack_pictures(pictures))


class Lessons(IterableDataset):
    """Batches `first`, first + 1, ...: what process `rank` of `ranks` gets of them. plan.at(i) gives (stage, progress within
    it) for batch i; factors: {task: how many times as often as usual}."""

    def __init__(self, tok, plan, seed, first, size, factors={}, rank=0, ranks=1):
        self.tok, self.plan, self.seed, self.first, self.size = tok, plan, seed, first, size
        self.mixture, self.part = dialogue.Mixture(factors), (rank, ranks)

    def make(self, number):
        stage, progress = self.plan.at(number)
        size = self.size + (texts_beside(self.size) if stage == "sight" else 0)
        rngs = [random.Random(f"{self.seed} {number} {k}") for k in range(size)]
        if stage == "sight":
            return sight(self.tok, rngs, progress, self.size, *self.part)
        counts = (1, 1, 2) if progress < 0.05 else (1, 2, 2, 3, 3, 4, 4, 5, 6)
        return lessons(self.tok, [(dialogue.lesson(rng, counts, self.mixture), rng) for rng in rngs], *self.part)

    def __iter__(self):
        info = get_worker_info()
        mine, step = (info.id, info.num_workers) if info else (0, 1)
        if info:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        number = self.first + mine
        while True:
            yield self.make(number)
            number += step


def loader(data, workers, pin):
    return DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=2 if workers else None, pin_memory=pin)
