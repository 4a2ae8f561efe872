"""Knobs from a DeepSpeed JSON, and what is wrong with one."""

import math
from collections.abc import Mapping
from typing import Any

from autotune.exports.deepspeed import SIDE_KEY
from autotune.exports.deepspeed_keys import (
    BLOCK_KEYS,
    DEPRECATED_KEYS,
    POSITIVE_KEYS,
    TOP_LEVEL_BLOCKS,
)
from autotune.exports.findings import Findings
from search_spaces import AmpDtype, KnobValue, OffloadTarget, Optimizer, did_you_mean
from search_spaces.deepspeed_document import TORCH_DTYPES

AUTO = "auto"
BATCH_KEYS = {
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_accumulation_steps": "accumulation_steps",
}
OPTIMIZERS = {
    "adam": Optimizer.ADAMW,
    "adamw": Optimizer.ADAMW,
    "lion": Optimizer.LION,
    "sgd": Optimizer.SGD,
}
"""By DeepSpeed's ``type`` in small letters; its Adam decays as AdamW does unless told not to."""


def is_deepspeed(document: Mapping[str, Any]) -> bool:
    """Return whether a document is DeepSpeed's."""
    return "zero_optimization" in document or "train_micro_batch_size_per_gpu" in document


def read_deepspeed(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a DeepSpeed document; what is wrong goes to the findings.

    A knob that DeepSpeed has no key for is the side key's, where we wrote the file.
    """
    side = findings.block(document, SIDE_KEY)
    own = findings.block(side, "config") or findings.own
    document = findings.with_numbers({k: v for k, v in document.items() if k != SIDE_KEY})
    _tell_misplaced(document, findings)
    zero = findings.block(document, "zero_optimization")
    _tell_old_keys(zero, findings)
    knobs = {
        **own,
        "zero_stage": zero.get("stage", 0),
        "offload_target": _offload_target(zero, findings),
        **_batch(document, findings),
    }
    knobs["amp_dtype"] = _amp_dtype(document, own, findings)
    return {**knobs, **_optimizer(document, findings)}


def _tell_misplaced(document: Mapping[str, Any], findings: Findings) -> None:
    """Tell why DeepSpeed would refuse a document: a block in the wrong place, unknown keys."""
    for name, known in BLOCK_KEYS.items():
        block: Mapping[str, Any] = document
        for part in name.split("."):
            block = findings.block(block, part)
        for key in block:
            if key in TOP_LEVEL_BLOCKS:
                findings.fault(f"{name}.{key} is misplaced: {key} belongs at top level")
            elif key not in known:
                findings.fault(f"{name} has no key {key!r}{_hint(name, key, known)}")


def _hint(name: str, key: str, known: set[str]) -> str:
    elsewhere = [other for other, keys in BLOCK_KEYS.items() if key in keys and other != name]
    if elsewhere:
        return f": it belongs in {elsewhere[0]}"
    guess = did_you_mean(key, known).partition(" known:")[0].rstrip(";")
    return guess


def _tell_old_keys(zero: Mapping[str, Any], findings: Findings) -> None:
    for key in sorted(DEPRECATED_KEYS.keys() & zero.keys()):
        findings.note(f"zero_optimization.{key} is deprecated: {DEPRECATED_KEYS[key]}")
    for key in POSITIVE_KEYS:
        if zero.get(key) == 0:
            findings.note(
                f"zero_optimization.{key}=0: DeepSpeed now refuses it, and wants 1 or more"
            )


def _offload_target(zero: Mapping[str, Any], findings: Findings) -> str:
    optimizer = findings.block(zero, "offload_optimizer").get("device", OffloadTarget.NONE)
    parameters = findings.block(zero, "offload_param").get("device", OffloadTarget.NONE)
    if findings.switch(zero, "cpu_offload", "zero_optimization."):
        optimizer = OffloadTarget.CPU
    if findings.switch(zero, "cpu_offload_param", "zero_optimization."):
        parameters = OffloadTarget.CPU
    target = optimizer if optimizer != OffloadTarget.NONE else parameters
    moved = {"offload_optimizer": optimizer, "offload_param": parameters}
    is_whole = optimizer == parameters or (zero.get("stage") != 3 and optimizer == target)
    if not is_whole:
        said = ", ".join(f"{name} {device}" for name, device in moved.items())
        findings.note(f"{said}: taken as offload_target={target}, which moves both at stage 3")
    return str(target)


def _batch(document: Mapping[str, Any], findings: Findings) -> dict[str, KnobValue]:
    said = {key: (knob, document.get(key, AUTO)) for key, knob in BATCH_KEYS.items()}
    knobs = findings.knobs_of({key: pair for key, pair in said.items() if pair[1] != AUTO})
    for key, (knob, value) in said.items():
        if value == AUTO:
            how = "is 'auto'" if key in document else "is not set"
            findings.note(f"{key} {how}: {knob} follows from the global batch")
    total = document.get("train_batch_size", AUTO)
    if total == AUTO:
        return knobs
    if isinstance(total, bool) or not isinstance(total, int) or total < 1:
        findings.fault(f"train_batch_size={total!r}: must be a whole number from 1")
        return knobs
    findings.global_batch_size = total
    parts = [int(value) for value in knobs.values()]
    if total % math.prod(parts):
        product = " x ".join(map(str, parts))
        findings.fault(f"train_batch_size={total} is no multiple of its parts, {product}")
    return knobs


def _amp_dtype(
    document: Mapping[str, Any], own: Mapping[str, object], findings: Findings
) -> object:
    cast = findings.block(document, "torch_autocast")
    modes = {dtype: findings.block(document, str(dtype)) for dtype in TORCH_DTYPES}
    undecided = [f"{dtype}.enabled" for dtype, m in modes.items() if m.get("enabled") == AUTO]
    used = [
        dtype
        for dtype, mode in modes.items()
        if f"{dtype}.enabled" not in undecided and findings.switch(mode, "enabled", f"{dtype}.")
    ]
    if findings.switch(cast, "enabled", "torch_autocast."):
        names = {name: dtype for dtype, name in TORCH_DTYPES.items()}
        said = str(cast.get("dtype"))
        return str(names.get(said, said))
    if len(used) == 2:
        findings.fault("fp16.enabled and bf16.enabled cannot both be true")
    if used:
        findings.note(f"{used[0]}.enabled keeps weights in 16 bits; trials keep them in fp32")
        return str(used[0])
    if undecided:
        findings.note(f"{' and '.join(undecided)} is 'auto': fp32 is taken")
    is_tf32 = own.get("amp_dtype") == AmpDtype.TF32
    return str(AmpDtype.TF32 if is_tf32 else AmpDtype.FP32)


def _optimizer(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    name = findings.block(document, "optimizer").get("type")
    if name is None:
        return {}
    if str(name).lower() not in OPTIMIZERS:
        findings.fault(f"optimizer.type {name!r} is no optimizer of ours: adamw, lion, sgd")
        return {}
    return {"optimizer": str(OPTIMIZERS[str(name).lower()])}
