"""Holds the stand-ins of lm_kernels.py against fla's real Triton kernels, run by Triton's interpreter on the CPU.

    python lm_check.py

Prints the largest difference of each and fails above 1e-5 (1e-3 for the chunked kernel, which multiplies in bf16 / tf32).
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.runtime.autotuner as autotuner
import triton.runtime.interpreter as interpreter

patch_tensor = interpreter._patch_lang_tensor


def patch_index(tensor, scope):
    """numpy >= 2.4 refuses int() of a one-element array, which the interpreter relies on."""
    patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))


interpreter._patch_lang_tensor = patch_index
