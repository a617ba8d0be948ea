"""Checks train.py on a CPU: several processes learn what one learns, and a run that was interrupted what an uninterrupted one
learns; a run whose process is killed ends. Exit code 1 if not. A minute or two; check_processes.py [SCRATCH-FOLDER]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = ["--batch", "6", "--rate", "0.03", "--experts", "8", "--f32", "--log-every", "1", "--exam-every", "1e9",
         "--device", "cpu"]
bad = []


def check(right, what):
    print("ok  " if right else "BAD ", what, flush=True)
    if not right:
        bad.append(what)


def command(folder, *more):
    return [sys.executable, "-u", os.path.join(HERE, "train.py"), "--out", folder, *SMALL, *more]


def start(folder, *more):
    """NATIVE=0: only torch's own operators; they are the same whatever else is in a batch, up to rounding. Without the exam."""
    code = "import sys, train; train.Trainer.exam = lambda self: None; sys.argv = sys.argv[1:]; train.main()"
    argv = command(folder, *more)
    return subprocess.Popen([argv[0], "-u", "-c", code, *argv[2:]], env={**os.environ, "NATIVE": "0", "PYTHONPATH": HERE},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(folder, *more, expect=0):
    p = start(folder, *more)
    said = p.communicate(timeout=300)[0]
    if p.returncode != expect:
        print(said)
    check(p.returncode == expect, f"{' '.join(more)}: exit code {p.returncode}")
    return torch.load(os.path.join(folder, "training.pt"), weights_only=True)


def until(p, words):
    """Reads what p prints up to a line with these words."""
    for line in p.stdout:
        if words in line:
            return
    raise SystemExit(f"the run ended with {p.wait()} before it said {words!r}")


def difference(one, other):
    """Of two lists of tensors: the length of the difference by the length, over all, and of the worst one of some size."""
    length = sum(float(a.double().square().sum()) for a in one) ** 0.5
    each = [(float((a.double() - b.double()).norm()), float(a.double().norm())) for a, b in zip(one, other, strict=True)]
    worst = max(d / n for d, n in each if n > 1e-4 * length)
    return sum(d * d for d, _ in each) ** 0.5 / length, worst


def compare(one, other, what, most_moments, most_weights):
    moments = [[s["optimizer"]["state"][i]["exp_avg"] for i in sorted(s["optimizer"]["state"])] for s in (one, other)]
    weights = [list(s["model"].values()) for s in (one, other)]
    for name, (a, b), most in (("moments", moments, most_moments), ("weights", weights, most_weights)):
        overall, worst = difference(a, b)
        check(overall < most and worst < 20 * most, f"{what}: {name} differ by {overall:.1e}, of one tensor {worst:.1e}")


def main():
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        folder = lambda name: os.path.join(scratch, name)
        for stage, sight in (("sight", "1"), ("lessons", "0")):
            # Adam's first steps make differences of rounding larger where the gradient is near 0.
            compare(*(run(folder(stage + n), "--steps", "2", "--sight", sight, "--processes", n) for n in ("1", "2")),
                    f"{stage}, 1 and 2 processes", 1e-4, 1e-5)

        long = ["--steps", "6", "--sight", "0.5"]
        whole = run(folder("whole"), *long, "--processes", "2")
        p = start(folder("cut"), *long, "--processes", "2")
        until(p, "     2 sight")
        p.send_signal(signal.SIGTERM)
        said = p.communicate(timeout=100)[0]
        check(p.returncode == 75, f"SIGTERM: exit code {p.returncode}; {said.strip().splitlines()[-1]}")
        resumed = run(folder("cut"), *long, "--processes", "1")
        check(whole["step"] == resumed["step"] == 6, "all steps were taken")
        compare(whole, resumed, "interrupted, continued with another number of processes", 1e-2, 1e-3)
        check(run(folder("cut"), "--steps", "7", "--processes", "2")["step"] == 7, "a finished run is extended")

        p = start(folder("killed"), "--steps", "1000", "--processes", "2")
        until(p, "     1 ")
        ranks = subprocess.run(["ps", "-o", "pid=", "--ppid", str(p.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(ranks[1]), signal.SIGKILL)
        begun = time.time()
        p.communicate(timeout=60)
        check(p.returncode == 1, f"a process was killed: the run ends with {p.returncode} after {time.time() - begun:.1f} s")
        check(not any(os.path.exists(f"/proc/{r}") for r in ranks), "and no process is left")
    print(f"{len(bad)} failed" if bad else "all right")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
