"""Trains the demo model: train.py [OPTION...]; resumes if its folder holds a checkpoint.

Two stages. "sight": the tower and projector learn from auxiliary heads what each patch shows, easy pictures first, while the
trunk learns text jobs beside them. "lessons": both together on conversations. What a batch holds depends on the seed and its
number alone, so that the same seed and steps give the same lessons on every machine, however often the run is interrupted.

On a CPU every usable core has a process of one thread; each learns from its part of a batch, and together they take the step
that one process would take.
"""

import argparse
import collections
import dataclasses
import json
import math
import multiprocessing
import os
import random
import time

import torch
import torch.nn.functional as F

import batches
import dialogue
import processes
import warm
from model import Config, Demo
from tokens import Tokenizer, learn

STEPS, BATCH, RATE = 12000, 256, 1.5e-3
GUESS = 1 << 20  # steps, while --minutes has not been measured
MEASURE = range(10, 40)  # the steps of a stage that tell how many fit
PATIENCE = 20  # steps in a row whose gradient may be useless
SHOWN = ("left", "right", "colour", "place", "size")  # as draw.seen and the auxiliary heads have them
LOGS = ("loss", "token", *SHOWN)


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

    def since_stage(self, step):
        return step - self.sight.value if step >= self.sight.value else step

    def fit(self, step, each, total, left, share):
        """Seconds: of a step of this stage, of the whole run, of what is left; share: of the time, for the first stage."""
        if step < self.sight.value:
            self.sight.value = max(step + MEASURE.stop, int(share * total / each))
            self.steps.value = self.sight.value + int((1 - share) * total / (2 * each))  # lessons take about twice as long
        else:
            self.steps.value = step + max(1, int(left / each))


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default="build/train", help="folder of the checkpoint")
    p.add_argument("--steps", type=int, help=f"{STEPS}; a run that goes on takes a new number, if one is given")
    p.add_argument("--minutes", type=float, help="instead of --steps: as many as fit into so many minutes; may be raised too")
    p.add_argument("--stop-after", type=float, default=1e9, help="save and stop after so many minutes; run again to go on")
    p.add_argument("--batch", type=int, default=BATCH, help="conversations, or pictures, of a step")
    p.add_argument("--sight", type=float, default=0.25, help="share of the steps, or minutes, for the tower alone")
    p.add_argument("--rate", type=float, help=f"highest learning rate, {RATE}; a run that goes on takes a new one")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--experts", type=int, default=Config.experts)
    p.add_argument("--from", dest="source", help="begin with the weights of this model's folder")
    p.add_argument("--weights", help="file of JSON, {task: how many times as often as usual}; kept in the checkpoint")
    p.add_argument("--processes", type=int, help="that learn together; usually one for each core, on a GPU 1")
    p.add_argument("--workers", type=int, help="processes that make batches for each of those; usually 0, on a GPU the cores - 1")
    p.add_argument("--threads", type=int, default=0, help="of torch, with one process; 0: its own choice")
    p.add_argument("--f32", action="store_true", help="compute in F32 even where bfloat16 is fast")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--save-every", type=float, default=3, help="minutes")
    p.add_argument("--exam-every", type=float, default=10, help="minutes")
    p.add_argument("--log-every", type=int, default=20, help="steps")
    o = p.parse_args()
    if o.processes is None:
        o.processes = 1 if o.device == "cuda" or o.threads > 1 or not hasattr(os, "fork") else processes.cores()
    if o.device == "cuda" and o.processes > 1:
        p.error("a GPU is for one process")
    if o.workers is None:
        o.workers = max(1, processes.cores() - 1) if o.device == "cuda" else 0
    return o


def has_fast_bf16(device):
    return device == "cuda" or torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def groups(model):
    """Weight decay for matrices, none for vectors, tables and filters."""
    plain = ("embed_tokens", "pos_emb", "conv1d", "patch_embed", "res_proj")
    decay, rest = [], []
    for name, p in model.named_parameters():
        (decay if p.dim() > 1 and not any(s in name for s in plain) else rest).append(p)
    return [{"params": decay, "weight_decay": 0.02}, {"params": rest, "weight_decay": 0.0}]


def rate(plan, step, highest):
    """A cosine in each stage; the first one does not go down as far."""
    stage, within = plan.at(step)
    warm_up = min(1.0, (plan.since_stage(step) + 1) / 100)
    lowest = 0.4 if stage == "sight" else 0.03
    return highest * warm_up * (lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * within)))


def balance(model, progress, loads):
    """The vendor's way to even loads: the bias of an expert used less than the mean goes up by a fixed step, else down.
    progress: within the stage."""
    if progress > 0.95:
        return
    step = max(0.0005, 0.01 * (1 - progress) ** 3)
    for moe, load in zip(model.moe(), loads):
        moe.gate.e_score_correction_bias += step * torch.sign(load.mean() - load)


def auxiliary_loss(model, rows, real, labels, patches, log):
    """Cross entropy of what each patch shows; patches that show something count four times. patches: their weights' sum."""
    labels = labels.long().unflatten(1, (-1, 4))[real]
    weight = torch.where(batches.shows(labels), 1.0, 0.25) / patches
    loss = 0
    for i, (name, logits) in enumerate(zip(SHOWN, model.auxiliary(rows[real]))):
        target = labels[..., i]
        loss = loss + (F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none") * weight.flatten()).sum()
        shown = target > 0
        log[name] = ((logits.argmax(-1) == target) & shown).sum(), shown.sum()
    return loss


def answers(model, batch, image_rows):
    """Logits [answer ids][vocabulary], their targets, and where they are: [batch][time - 1]."""
    ids, where = batch["ids"], batch["mask"][:, 1:]
    before = F.pad(where, (0, 1))[ids != model.padding]
    return model.logits(model.read(ids, image_rows)[before]), ids[:, 1:][where], where


def loss_of(model, batch, stage, progress, totals, log):
    """totals: answer ids and weight of the patches in the whole batch, of which this may be a part; log gets {name: (sum,
    count)}."""
    loss, image_rows = 0, None
    if "pixels" in batch:
        rows, real = model.see(batch["pixels"], batch["places"], batch["grids"])
        share = 1.0 if stage == "sight" else 0.6 if progress < 0.5 else 0.3 if progress < 0.8 else 0.1
        loss = share * auxiliary_loss(model, rows, real, batch["labels"], totals[1], log)
        image_rows = rows[real] if stage == "lessons" else None
    logits, target, _ = answers(model, batch, image_rows)
    text = F.cross_entropy(logits, target, reduction="sum")
    ids = torch.tensor(len(target))
    log["loss"], log["token"] = (text.detach(), ids), ((logits.argmax(-1) == target).sum(), ids)
    return loss + text / totals[0]


@torch.no_grad()
def examine(model, tok, device, amount=192, seed="exam"):
    """{task: [right, all]} with every earlier id of the right answer given: on lessons of another seed."""
    result = collections.defaultdict(lambda: [0, 0])
    for first in range(0, amount, 32):
        rngs = [random.Random(f"{seed} {k}") for k in range(first, first + 32)]
        lessons = [dialogue.lesson(rng, (1, 2, 3, 4)) for rng in rngs]
        batch = {k: v.to(device) for k, v in batches.lessons(tok, list(zip(lessons, rngs))).items() if k != "counts"}
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
            "step": 0, "steps": GUESS if o.minutes else o.steps or STEPS, "minutes": o.minutes,
            "sight": int(o.sight * (GUESS if o.minutes else o.steps or STEPS)), "fitted": None,
            "seed": o.seed, "batch": o.batch, "rate": o.rate or RATE, "seconds": 0.0, "pictures": 0,
            "weights": {}, "accuracy": {}}


class Trainer:
    def __init__(self, o):
        self.o = o
        self.path = os.path.join(o.out, "training.pt")
        os.makedirs(o.out, exist_ok=True)
        old = os.path.exists(self.path)
        self.saved = torch.load(self.path, map_location="cpu", weights_only=True) if old else begin(o)
        for name, value in (("weights", {}), ("accuracy", {}), ("minutes", o.minutes), ("fitted", None)):
            self.saved.setdefault(name, value)
        self.tok = Tokenizer(self.saved["ranks"])
        special = self.tok.special
        self.model = Demo(Config(**self.saved["config"]), special["<|media_pad|>"], special["[PAD]"])
        self.model.load_state_dict(self.saved.pop("model"))
        self.model.to(o.device)
        # Every process needs a text of the first stage, see batches.sight.
        self.team = processes.Team(max(1, min(o.processes, batches.texts_beside(self.saved["batch"]))))
        self.shared = processes.Shared(self.team, self.model, self.make_optimizer, self.saved.pop("optimizer"))
        self.totals = self.team.zeros(self.team.size, 3, dtype=torch.float64)
        self.wishes = self.team.zeros(self.team.size)  # not 0: this process was asked to stop
        self.logs = self.team.zeros(self.team.size, len(LOGS), 2, device=o.device)
        moe = self.model.moe()
        self.loads = self.team.zeros(self.team.size, len(moe), self.model.c.experts, device=o.device)
        self.plan = Plan(self.saved["steps"], self.saved["sight"])
        self.step, self.seconds, self.pictures = (self.saved[k] for k in ("step", "seconds", "pictures"))
        self.mark, self.skipped = None, 0
        self.dtype = torch.bfloat16 if has_fast_bf16(o.device) and not o.f32 else torch.float32
        count = sum(p.numel() for n, p in self.model.named_parameters() if not n.startswith("auxiliary"))
        print(f"{count} parameters, {o.device}, {self.dtype}, {self.team.size} processes, step {self.step}", flush=True)
        if o.weights:
            with open(o.weights) as f:
                self.saved["weights"] = {str(k): float(v) for k, v in json.load(f).items()}
        if old:
            self.override()

    @staticmethod
    def make_optimizer(model):
        return torch.optim.AdamW(groups(model), betas=(0.9, 0.98), eps=1e-8, fused=True)

    def override(self):
        """What was given for a run that goes on and differs from what it had."""
        o, saved = self.o, self.saved
        if o.rate and o.rate != saved["rate"]:
            print(f"rate {saved['rate']} -> {o.rate}", flush=True)
            saved["rate"] = o.rate
        if o.minutes and o.minutes != saved["minutes"]:
            print(f"minutes {saved['minutes']} -> {o.minutes}", flush=True)
            if self.step:  # a first guess, until steps have been measured
                self.plan.fit(self.step, self.seconds / self.step, o.minutes * 60, o.minutes * 60 - self.seconds, o.sight)
            saved["minutes"], saved["fitted"] = o.minutes, None
        elif o.steps and not o.minutes and o.steps != saved["steps"]:
            print(f"steps {saved['steps']} -> {o.steps}", flush=True)
            self.plan.steps.value = o.steps
            self.plan.sight.value = min(self.plan.sight.value, o.steps)
            saved["minutes"] = None

    def save(self):
        """By one process, while the others change nothing."""
        state = {**self.saved, "model": {k: v.clone() for k, v in self.model.state_dict().items()},
                 "optimizer": self.shared.optimizer.state_dict(), "step": self.step, "steps": self.plan.steps.value,
                 "sight": self.plan.sight.value, "seconds": self.seconds, "pictures": self.pictures}
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def cast(self):
        return torch.autocast(self.o.device, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def share_counts(self, counts):
        """Of the whole batch, what batches.count says of a part. All processes meet here: nothing of the last step is left."""
        self.totals[self.team.rank] = counts
        self.team.meet()
        return self.totals.sum(0).tolist()

    def learn(self, batch, totals, wish):
        """A step of all processes. wish: stop after it; gives whether any of them wants that."""
        rank = self.team.rank
        stage, within = self.plan.at(self.step)
        for group in self.shared.optimizer.param_groups:
            group["lr"] = rate(self.plan, self.step, self.saved["rate"])
        for moe in self.model.moe():
            moe.experts.rounded = stage == "lessons" and within > 0.5
        log = {}
        with self.cast():
            loss = loss_of(self.model, batch, stage, within, totals, log)
        loss.backward()
        zero = torch.zeros(2, device=self.o.device)
        self.logs[rank] = torch.stack([torch.stack([x.to(zero) for x in log[k]]) if k in log else zero for k in LOGS])
        self.loads[rank] = torch.stack([m.count for m in self.model.moe()])
        self.wishes[rank] = wish
        self.team.meet()  # every process has its gradient
        self.shared.sum()
        loads, logs, stop = self.loads.sum(0), self.logs.sum(0), bool(self.wishes.any())
        if rank == 0:
            self.measure()
        self.team.meet()  # every part is summed
        norm = self.shared.norm()
        if math.isfinite(norm):
            self.shared.update(min(1.0, 1 / (norm + 1e-6)))
            balance(self.model, within, loads)
            self.skipped = 0
        else:
            self.shared.update(None)
            self.skipped += 1
            if rank == 0:
                print(f"step {self.step}: the gradient's norm is {norm}; nothing learned from it", flush=True)
            if self.skipped >= PATIENCE:
                raise SystemExit(f"{PATIENCE} steps in a row without a gradient")
        self.step += 1
        uneven = (loads.amax(1) / loads.mean(1)).mean()
        self.sums += torch.cat([logs, logs.new_tensor([[norm, 1]]), torch.stack([uneven, uneven.new_ones(())])[None]])
        return stop

    def measure(self):
        """With --minutes: early in each stage its steps are timed, and as many planned as fit. By one process, while no other
        reads the plan."""
        stage, nth, now = self.plan.at(self.step)[0], self.plan.since_stage(self.step), time.time()
        if not self.o.minutes or self.saved["fitted"] == stage or nth < MEASURE.start:
            return
        if self.mark is None:
            self.mark = self.step, now
        elif self.step - self.mark[0] == len(MEASURE):
            each, total = (now - self.mark[1]) / len(MEASURE), self.o.minutes * 60
            self.plan.fit(self.step, each, total, total - self.seconds, self.o.sight)
            self.saved["fitted"], self.mark = stage, None
            print(f"{each:.2f} s a step: {self.plan.steps.value} steps, {self.plan.sight.value} of them sight", flush=True)

    def report(self, pictures, seconds):
        stage, within = self.plan.at(self.step)
        means = " ".join(f"{k} {a / n:.3f}" for k, (a, n) in zip((*LOGS, "norm", "uneven"), self.sums.tolist()) if n)
        print(f"{self.step:6d} {stage} {within:.3f} rate {rate(self.plan, self.step, self.saved['rate']):.1e} {means} "
              f"pictures/s {pictures / seconds:.1f}", flush=True)
        self.sums.zero_()

    def exam(self):
        """Prints the accuracy of each task, worst first; DIR/weights.json then holds what --weights would take to practise most
        what goes worst."""
        with self.cast():
            result = examine(self.model, self.tok, self.o.device)
        right, total = (sum(r[i] for r in result.values()) for i in (0, 1))
        order = sorted(result.items(), key=lambda item: (item[1][0] / item[1][1], item[0]))
        print(f"   exam {right}/{total} {100 * right / total:.1f} %: "
              + ", ".join(f"{k} {a}/{b} {100 * a / b:.0f} %" for k, (a, b) in order), flush=True)
        accuracy = self.saved["accuracy"]
        for task, (a, b) in result.items():
            accuracy[task] = 0.5 * accuracy.get(task, a / b) + 0.5 * a / b
        with open(os.path.join(self.o.out, "weights.json"), "w") as f:
            json.dump({k: round(min(1.3, max(0.3, 1.3 - v)), 3) for k, v in sorted(accuracy.items())}, f, indent=1)

    def run(self):
        """In each process; gives the exit code."""
        o, team, first = self.o, self.team, self.team.rank == 0
        if team.size > 1:
            torch.set_num_threads(1)
        self.shared.enter()
        self.sums = torch.zeros(len(LOGS) + 2, 2, device=o.device)
        data = batches.Lessons(self.tok, self.plan, self.saved["seed"], self.step, self.saved["batch"], self.saved["weights"],
                               team.rank, team.size)
        data = iter(batches.loader(data, o.workers, o.device == "cuda") if o.workers else data)
        begun = saved = examined = logged = now = time.time()
        seen, stop = 0, False
        while not stop and self.step < self.plan.steps.value:
            batch = next(data)
            totals = self.share_counts(batch.pop("counts"))
            if first and now - examined > o.exam_every * 60:
                self.exam()
                examined = now
            if first and now - saved > o.save_every * 60:
                self.save()
                saved = now
            batch = {k: v.to(o.device, non_blocking=True) for k, v in batch.items()}
            stop = self.learn(batch, totals, team.stop or now - begun > o.stop_after * 60)
            seen += int(totals[2])
            before, now = now, time.time()
            self.seconds += now - before
            if self.step % o.log_every == 0:
                if first:
                    self.report(seen, now - logged)
                self.pictures += seen
                seen, logged = 0, now
        self.pictures += seen
        done = self.step >= self.plan.steps.value
        team.meet()
        if first:
            self.save()
            if not team.stop:  # a signal may leave little time
                self.exam()
                self.save()
            print(f"{'finished' if done else 'stopped'} at step {self.step} of {self.plan.steps.value}, "
                  f"{self.seconds / 60:.1f} minutes, {self.pictures} pictures", flush=True)
        return 0 if done else processes.STOPPED


def main():
    o = options()
    if o.device == "cpu":
        processes.restart(1 if o.processes > 1 else o.threads)
    torch.set_num_threads(1 if o.processes > 1 else o.threads or torch.get_num_threads())
    trainer = Trainer(o)
    raise SystemExit(trainer.team.run(trainer.run))


if __name__ == "__main__":
    main()
