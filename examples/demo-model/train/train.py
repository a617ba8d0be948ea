"""Trains the demo model: train.py [OPTION...]; resumes if its folder holds a checkpoint.

Two stages. "sight": the tower and projector learn from auxiliary heads what each patch shows, easy pictures first, while the
trunk learns text jobs beside them. "lessons": both together on conversations. What a batch holds depends on the seed and its
number alone, so that the same seed and steps give the same lessons on every machine, however often the run is interrupted.
"""

import argparse
import collections
import dataclasses
import math
import multiprocessing
import os
import random
import time

import torch
import torch.nn.functional as F

import batches
import dialogue
import warm
from model import Config, Demo
from tokens import Tokenizer, learn

GUESS = 1 << 20  # steps, while --minutes has not been measured
MEASURE = range(10, 40)  # the steps of a stage that tell how many fit


class Plan:
    """Which stage a step belongs to. Its two numbers are shared with the processes that make batches."""

    def __init__(self, steps, sight):
        """sight: how many of the steps are the first stage."""
        self.steps, self.sight = multiprocessing.Value("q", steps), multiprocessing.Value("q", sight)

    def at(self, step):
        sight, steps = self.sight.value, self.steps.value
        if step < sight:
            return "sight", step / sight
        return "lessons", min(1.0, (step - sight) / max(1, steps - sight))

    def progress(self, step):
        return min(1.0, step / self.steps.value)

    def since_stage(self, step):
        return step - self.sight.value if step >= self.sight.value else step

    def fit(self, step, each, total, left, share):
        """Seconds: of a step of this stage, of the whole run, of what is left; share: of the time, for the first stage."""
        if step < self.sight.value:
            self.sight.value = max(2 * MEASURE.stop, int(share * total / each))
            self.steps.value = self.sight.value + int((1 - share) * total / (2 * each))  # lessons take about twice as long
        else:
            self.steps.value = step + max(1, int(left / each))


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default="build/train", help="folder of the checkpoint")
    p.add_argument("--steps", type=int, default=12000)
    p.add_argument("--minutes", type=float, help="instead of --steps: as many as fit into so many minutes")
    p.add_argument("--stop-after", type=float, default=1e9, help="save and stop after so many minutes; run again to go on")
    p.add_argument("--batch", type=int, default=256, help="conversations, or pictures, of a step")
    p.add_argument("--sight", type=float, default=0.25, help="share of the steps, or minutes, for the tower alone")
    p.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--experts", type=int, default=Config.experts)
    p.add_argument("--from", dest="source", help="begin with the weights of this model's folder")
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that make batches")
    p.add_argument("--threads", type=int, default=0, help="of torch; 0: its own choice")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--save-every", type=float, default=3, help="minutes")
    p.add_argument("--exam-every", type=float, default=10, help="minutes")
    p.add_argument("--log-every", type=int, default=20, help="steps")
    return p.parse_args()


def has_fast_bf16(device):
    return device == "cuda" or torch.cpu._is_amx_tile_supported()


def groups(model):
    """Weight decay for matrices, none for vectors, tables and filters."""
    plain = ("embed_tokens", "pos_emb", "conv1d", "patch_embed", "res_proj")
    decay, rest = [], []
    for name, p in model.named_parameters():
        (decay if p.dim() > 1 and not any(s in name for s in plain) else rest).append(p)
    return [{"params": decay, "weight_decay": 0.02}, {"params": rest, "weight_decay": 0.0}]


def rate(plan, step, highest):
    warm_up = min(1.0, (plan.since_stage(step) + 1) / 100)
    return highest * warm_up * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * plan.progress(step))))


def balance(model, progress):
    """The vendor's way to even loads: the bias of an expert used less than the mean goes up by a fixed step, else down."""
    if progress > 0.95:
        return
    step = max(0.0005, 0.01 * (1 - progress) ** 3)
    for moe in model.moe():
        if moe.count is not None:
            load = moe.count.float()
            moe.gate.e_score_correction_bias += step * torch.sign(load.mean() - load)


def auxiliary_loss(model, rows, real, labels, log):
    """Cross entropy of what each patch shows; patches that show something count four times."""
    labels = labels.long().unflatten(1, (-1, 4))[real]
    weight = torch.where(labels[..., 0] > 0, 1.0, 0.25)
    weight = weight / weight.sum()
    loss = 0
    for i, (name, logits) in enumerate(zip(("class", "colour", "place", "size"), model.auxiliary(rows[real]))):
        target = labels[..., i]
        loss = loss + (F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none") * weight.flatten()).sum()
        shown = target > 0
        if shown.any():
            log[name] = (logits.argmax(-1) == target)[shown].float().mean()
    return loss


def answers(model, batch, image_rows):
    """Logits [answer ids][vocabulary], their targets, and where they are: [batch][time - 1]."""
    ids, where = batch["ids"], batch["mask"][:, 1:]
    before = F.pad(where, (0, 1))[ids != model.padding]
    return model.logits(model.read(ids, image_rows)[before]), ids[:, 1:][where], where


def loss_of(model, batch, stage, progress, log):
    loss, image_rows = 0, None
    if "pixels" in batch:
        rows, real = model.see(batch["pixels"], batch["places"], batch["grids"])
        share = 1.0 if stage == "sight" else 0.6 if progress < 0.5 else 0.3 if progress < 0.8 else 0.1
        loss = share * auxiliary_loss(model, rows, real, batch["labels"], log)
        image_rows = rows[real] if stage == "lessons" else None
    logits, target, _ = answers(model, batch, image_rows)
    text = F.cross_entropy(logits, target)
    log["loss"], log["token"] = text.detach(), (logits.argmax(-1) == target).float().mean()
    return loss + text


@torch.no_grad()
def examine(model, tok, device, amount=192, seed="exam"):
    """{task: [right, all]} with every earlier id of the right answer given: on lessons of another seed."""
    result = collections.defaultdict(lambda: [0, 0])
    rng = random.Random(seed)
    for _ in range(amount // 32):
        lessons = [dialogue.lesson(rng, (1, 2, 3, 4)) for _ in range(32)]
        batch = {k: v.to(device) for k, v in batches.lessons(tok, rng, lessons).items()}
        rows, real = model.see(batch["pixels"], batch["places"], batch["grids"])
        logits, target, where = answers(model, batch, rows[real])
        right = torch.ones_like(where)
        right[where] = logits.argmax(-1) == target
        for lesson, row, mask in zip(lessons, right.cpu(), where.cpu()):
            edges = torch.diff(F.pad(mask.int(), (1, 1))).nonzero()[:, 0].tolist()
            for question, first, end in zip(lesson.turns, edges[::2], edges[1::2]):
                result[question.task][0] += int(row[first:end].all())
                result[question.task][1] += 1
    return result


def vocabulary(seed, size):
    return Tokenizer(learn(dialogue.corpus(random.Random(f"vocabulary {seed}"), 4000), size))


def begin(o):
    """What a checkpoint holds, fresh."""
    torch.manual_seed(o.seed)
    tok = vocabulary(o.seed, Config.vocab - 16)
    config = Config(vocab=tok.size, experts=o.experts)
    model = Demo(config, tok.special["<|media_pad|>"], tok.special["[PAD]"])
    if o.source:
        warm.begin(model, tok, o.source)
    return {"config": dataclasses.asdict(config), "ranks": tok.ranks, "model": model.state_dict(), "optimizer": None,
            "step": 0, "steps": GUESS if o.minutes else o.steps,
            "sight": int(o.sight * (GUESS if o.minutes else o.steps)),
            "seed": o.seed, "batch": o.batch, "rate": o.rate, "seconds": 0.0, "pictures": 0}


class Trainer:
    def __init__(self, o):
        self.o = o
        self.path = os.path.join(o.out, "training.pt")
        os.makedirs(o.out, exist_ok=True)
        old = os.path.exists(self.path)
        self.saved = torch.load(self.path, map_location="cpu", weights_only=True) if old else begin(o)
        self.tok = Tokenizer(self.saved["ranks"])
        special = self.tok.special
        self.model = Demo(Config(**self.saved["config"]), special["<|media_pad|>"], special["[PAD]"])
        self.model.load_state_dict(self.saved["model"])
        self.model.to(o.device)
        self.optimizer = torch.optim.AdamW(groups(self.model), betas=(0.9, 0.98), eps=1e-8, fused=True)
        if self.saved["optimizer"]:
            self.optimizer.load_state_dict(self.saved["optimizer"])
        self.plan = Plan(self.saved["steps"], self.saved["sight"])
        self.step, self.seconds, self.pictures = (self.saved[k] for k in ("step", "seconds", "pictures"))
        self.mark = None
        self.dtype = torch.bfloat16 if has_fast_bf16(o.device) else torch.float32
        count = sum(p.numel() for n, p in self.model.named_parameters() if not n.startswith("auxiliary"))
        print(f"{count} parameters, {o.device}, {self.dtype}, step {self.step}", flush=True)

    def save(self):
        state = {**self.saved, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "step": self.step, "steps": self.plan.steps.value, "sight": self.plan.sight.value, "seconds": self.seconds,
                 "pictures": self.pictures}
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def cast(self):
        return torch.autocast(self.o.device, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def learn(self, batch, log):
        progress = self.plan.progress(self.step)
        stage, within = self.plan.at(self.step)
        for moe in self.model.moe():
            moe.experts.rounded = progress > 0.5
        with self.cast():
            loss = loss_of(self.model, batch, stage, within, log)
        loss.backward()
        log["norm"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.plan, self.step, self.saved["rate"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        balance(self.model, progress)
        load = torch.stack([m.count.float() for m in self.model.moe()])
        log["uneven"] = (load.amax(1) / load.mean(1)).mean()

    def measure(self, now):
        """With --minutes: early in each stage its steps are timed, and as many planned as fit."""
        nth = self.plan.since_stage(self.step)
        if nth == MEASURE.start:
            self.mark = now
        elif nth == MEASURE.stop and self.mark:
            each, total = (now - self.mark) / len(MEASURE), self.o.minutes * 60
            self.plan.fit(self.step, each, total, total - self.seconds, self.o.sight)
            print(f"{each:.2f} s a step: {self.plan.steps.value} steps, {self.plan.sight.value} of them sight", flush=True)

    def report(self, logs, pictures, seconds):
        mean = {k: sum(float(x[k]) for x in logs if k in x) / max(1, sum(k in x for x in logs))
                for k in dict.fromkeys(k for x in logs for k in x)}
        stage, within = self.plan.at(self.step)
        print(f"{self.step:6d} {stage} {within:.3f} rate {rate(self.plan, self.step, self.saved['rate']):.1e} "
              + " ".join(f"{k} {v:.3f}" for k, v in mean.items()) + f" pictures/s {pictures / seconds:.1f}", flush=True)

    def exam(self):
        with self.cast():
            result = examine(self.model, self.tok, self.o.device)
        right, total = (sum(r[i] for r in result.values()) for i in (0, 1))
        print(f"   exam {right}/{total} " + " ".join(f"{k} {a}/{b}" for k, (a, b) in sorted(result.items())), flush=True)

    def run(self):
        o = self.o
        data = batches.loader(self.tok, self.plan, self.saved["seed"], self.step, self.saved["batch"], o.workers,
                              o.device == "cuda")
        begun = saved = examined = logged = now = time.time()
        logs, pictures = [], 0
        for batch in data:
            if self.step >= self.plan.steps.value or now - begun > o.stop_after * 60:
                break
            batch = {k: v.to(o.device, non_blocking=True) for k, v in batch.items()}
            logs.append({})
            self.learn(batch, logs[-1])
            self.step += 1
            pictures += len(batch.get("grids", ()))
            before, now = now, time.time()
            self.seconds += now - before
            if o.minutes:
                self.measure(now)
            if self.step % o.log_every == 0:
                self.report(logs, pictures, now - logged)
                self.pictures += pictures
                logs, pictures, logged = [], 0, now
            if now - examined > o.exam_every * 60:
                self.exam()
                examined = now
            if now - saved > o.save_every * 60:
                self.save()
                saved = now
        self.exam()
        self.save()
        done = self.step >= self.plan.steps.value
        print(f"{'finished' if done else 'stopped'} at step {self.step} of {self.plan.steps.value}, "
              f"{self.seconds / 60:.1f} minutes, {self.pictures} pictures", flush=True)
        return done


def main():
    o = options()
    if o.threads:
        torch.set_num_threads(o.threads)
    raise SystemExit(0 if Trainer(o).run() else 75)


if __name__ == "__main__":
    main()
