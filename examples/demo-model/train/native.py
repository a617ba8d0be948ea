"""C kernels of the training, compiled when first wanted for the processor they run on.

library() compiles the native*.c beside this file into one library in build/native; it is found again by a hash of the
sources, the processor's features and the compiler. enabled() says whether models on a CPU take them: NATIVE=0 in the environment, a
missing compiler or set(False) leaves plain torch.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = ROOT / "build" / "native"
# -Bsymbolic: the files call each other, not what the process has of the same name
FLAGS = ["-std=gnu11", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wall", "-Wextra"]

_wanted = os.environ.get("NATIVE", "1") != "0"


def compiler():
    """The compiler's path, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def set(on):
    """For comparisons within one process; gives what was set before."""
    global _wanted
    before, _wanted = _wanted, on
    return before


def enabled():
    return _wanted and _usable()


def asked(x):
    """Whether native code is wanted for x: on a CPU, where autocast has products in BF16."""
    return (x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
            and enabled())


@functools.cache
def _usable():
    if compiler():
        return True
    print("native: no C compiler (cc): training on plain torch, which is several times slower", file=sys.stderr)
    return False


def _features():
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags", "Features"))


@functools.cache
def library():
    """The kernels, compiled if no earlier library fits."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("the kernels of the training need a C compiler: install cc or set CC (NATIVE=0 trains without)")
    sources = sorted(HERE.glob("native*.c"))
    version = subprocess.run([cc, "--version"], capture_output=True, text=True).stdout
    texts = [path.read_text() for path in [*sources, *sorted(HERE.glob("native*.h"))]]
    key = "\0".join([*texts, " ".join(FLAGS), version, platform.machine(), _features()])
    found = CACHE / f"train-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:  # processes may race: the rename lets one of them win, whole
            made = Path(work) / found.name
            run = subprocess.run([cc, *FLAGS, "-I", ROOT, "-o", made, *sources, "-lm"], capture_output=True, text=True)
            if run.returncode:
                raise RuntimeError(f"{cc} does not compile the kernels (NATIVE=0 trains without):\n{run.stderr}")
            os.replace(made, found)
    return ctypes.CDLL(str(found))


def call(name, *arguments):
    """Tensors as addresses, integers as long, floats as float; a pair (tensor, column) begins at that column."""
    getattr(library(), name)(*map(_argument, arguments))


def _argument(a):
    if isinstance(a, int):
        return ctypes.c_long(a)
    if isinstance(a, float):
        return ctypes.c_float(a)
    if isinstance(a, tuple):
        return ctypes.c_void_p(a[0].data_ptr() + a[1] * a[0].element_size())
    return ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a
