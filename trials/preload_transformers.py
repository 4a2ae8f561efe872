"""What a trial host imports beside ``trials.preload`` for models of Hugging Face: seconds each.

Starts no thread, no CUDA. A broken transformers is for the workload to say.
"""

import gc
import importlib
from contextlib import suppress

with suppress(ImportError, OSError, RuntimeError, AttributeError):
    importlib.import_module("trials.huggingface")
gc.freeze()
