"""One process for each core, with shared memory between them: weights, moments and gradients of a training run on a CPU.

The first process makes everything, then forks the others' equals and only watches: it passes signals on, and when one of them
dies it ends the rest. Memory is anonymous, so neither /dev/shm nor a network is needed.
"""

import ctypes.util
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading

import torch

# What torch frees is kept by the process; else every large temporary costs its page faults again.
SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_TOP_PAD_": "268435456"}
# jemalloc, where it is installed, finds free memory faster: 10 % of a step. What nobody used for three seconds goes back:
# kept for ever it is torn to pieces by lessons of all sizes, 15 GB after ten minutes.
JEMALLOC = {"MALLOC_CONF": "retain:true,dirty_decay_ms:3000,muzzy_decay_ms:3000,oversize_threshold:0"}
STOPPED = 75  # exit code: saved, and there is more to do


def cores():
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def restart(threads):
    """Begins this program again with SETTINGS in the environment, unless they are there; threads: of OpenMP, 0 says nothing."""
    wanted = SETTINGS | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    if jemalloc := ctypes.util.find_library("jemalloc"):
        wanted |= JEMALLOC | {"LD_PRELOAD": jemalloc}
    if any(name not in os.environ for name in wanted):
        sys.stdout.flush()
        os.execve(sys.executable, sys.orig_argv, {**wanted, **os.environ})


class Team:
    def __init__(self, size):
        self.size, self.rank = size, 0
        self.context = multiprocessing.get_context("fork" if size > 1 else None)
        self.barrier = self.context.Barrier(size) if size > 1 else None
        self.stop = False  # a signal has come

    def zeros(self, *shape, dtype=torch.float32, device="cpu"):
        """A tensor that all processes share."""
        if self.size == 1:
            return torch.zeros(shape, dtype=dtype, device=device)
        memory = mmap.mmap(-1, max(1, math.prod(shape)) * dtype.itemsize)
        return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(shape)

    def meet(self):
        """Waits until every process is here."""
        if self.barrier:
            self.barrier.wait()

    def listen(self):
        def note(*_):
            self.stop = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, note)

    def _work(self, rank, work, alive):
        self.rank = rank
        self.listen()
        os.close(alive[1])

        def end_with_parent():
            os.read(alive[0], 1)
            os._exit(1)
        threading.Thread(target=end_with_parent, daemon=True).start()
        sys.exit(work())

    def run(self, work):
        """work() in each process; gives its exit code, which is the same in all, or 1 if one of them failed."""
        if self.size == 1:
            self.listen()
            return work()
        alive = os.pipe()
        ranks = [self.context.Process(target=self._work, args=(r, work, alive)) for r in range(self.size)]
        asked = []

        def pass_on(*_):
            asked.append(True)
            for p in ranks:
                if p.pid and p.exitcode is None:
                    os.kill(p.pid, signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        for p in ranks:
            p.start()
        if asked:
            pass_on()
        left, failed = list(ranks), []
        while left and not failed:
            multiprocessing.connection.wait([p.sentinel for p in left])
            failed = [p for p in left if p.exitcode not in (None, 0, STOPPED)]
            left = [p for p in left if p.exitcode is None]
        for p in left:
            p.kill()
        for p in failed:
            print(f"process {ranks.index(p)} ended with {p.exitcode}: the run ends", flush=True)
        return 1 if failed else ranks[0].exitcode


class Shared:
    """A model's parameters, their gradients and Adam's moments in flat tensors that a team shares. Each process sums and steps
    a part of the parameters, for all."""

    ALIGN = 16  # values

    def __init__(self, team, model, make_optimizer, state):
        """state: what the optimizer's state_dict() gave, or None."""
        self.team = team
        self.all = list(model.parameters())
        device = self.all[0].device
        ends = [0]
        for p in self.all:
            ends.append(ends[-1] + -(-p.numel() // self.ALIGN) * self.ALIGN)
        self.edges = ends
        self.weights = team.zeros(ends[-1], device=device)
        self.gradients = team.zeros(team.size, ends[-1], device=device)
        self.moments = team.zeros(2, ends[-1], device=device)
        self.steps = team.zeros(len(self.all), device=device)
        self.squares = team.zeros(team.size)
        for p, view in zip(self.all, self.views(self.weights)):
            p.data = view.copy_(p.data)
        self.optimizer = make_optimizer(model)
        if state:
            self.optimizer.load_state_dict(state)
        parts = zip(self.all, self.views(self.moments[0]), self.views(self.moments[1]), self.steps)
        for p, first, second, step in parts:
            old = self.optimizer.state[p]
            for name, view in (("exp_avg", first), ("exp_avg_sq", second), ("step", step)):
                if name in old:
                    view.copy_(old[name])
                old[name] = view

    def views(self, flat):
        return [flat[start:start + p.numel()].view_as(p) for p, start in zip(self.all, self.edges)]

    def enter(self):
        """To be called in each process."""
        rank, size = self.team.rank, self.team.size
        self.mine = self.gradients[rank]
        self.grads = self.views(self.mine)
        owner = [start * size // self.edges[-1] for start in self.edges[:-1]]
        self.owned = [o == rank for o in owner]
        self.low, self.high = (self.edges[sum(o < r for o in owner)] for r in (rank, rank + 1))
        self.attach()

    def attach(self):
        for p, grad in zip(self.all, self.grads):
            p.grad = grad

    def sum(self):
        """My part of the gradient over all processes, and its square; between two meetings."""
        part = self.mine[self.low:self.high]
        for other in range(self.team.size):
            if other != self.team.rank:
                part += self.gradients[other, self.low:self.high]
        owned = [g for g, owned in zip(self.grads, self.owned) if owned]
        self.squares[self.team.rank] = torch.nn.utils.get_total_norm(owned) ** 2 if owned else 0.0

    def norm(self):
        return float(self.squares.double().sum()) ** 0.5

    def update(self, scale):
        """A step of my part with the gradient times scale, if that is not None; and all of my gradient is zero again."""
        if scale is not None:
            if scale != 1:
                self.mine[self.low:self.high] *= scale
            for p, owned in zip(self.all, self.owned):
                if not owned:
                    p.grad = None
            self.optimizer.step()
            self.attach()
        self.mine.zero_()
