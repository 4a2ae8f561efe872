"""What a trial host imports once, so that no trial has to. Starts no thread, no CUDA.

A process can be forked safely only while it has one thread: numpy's linear algebra would start
more at import unless told not to. ``torch._dynamo`` is what a first optimizer imports lazily.

The process leaves its host's group: what ends that group when the host dies would end trials
before they could end what they started.
"""

import gc
import importlib
import os
from contextlib import suppress

if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
os.environ["OPENBLAS_NUM_THREADS"] = "1"

for name in ("torch._dynamo", "trials.builtin_workloads", "trials.runner", "trials.child"):
    importlib.import_module(name)
# One that is broken takes 8-bit optimizers with it, and nothing else: the environment says so.
with suppress(ImportError, OSError, RuntimeError, AttributeError):
    importlib.import_module("bitsandbytes.optim")

# Forked children then share these objects' pages instead of copying them to collect garbage.
gc.freeze()
