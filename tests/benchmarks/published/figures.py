"""Published figures, and what ``estimate`` says of the same training."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.estimating import Traced, trace
from autotune.predict.predictor import Prediction
from autotune.settings import Settings
from search_spaces import SearchSpace, TrainingConfig
from tests.benchmarks.published import models

GIB, GB = 2**30, 10**9
KEY_WITHIN, SAVING_WITHIN = 0.02, 0.05
HOST_BUFFERS = 1.5
"""What DeepSpeed's estimate adds to host memory for buffers: its ``additional_buffer_factor``."""
NUM_GPUS = 8
BITS = (32, 8, 4)
VIT_H_GB = {"bnb 8-bit": (8, 8.32), "ao 8-bit": (8, 8.33), "ao 4-bit": (4, 7.72)}
LLAMA_GB = {"bnb 8-bit": (8, 39.3), "ao 8-bit": (8, 39.1), "ao 4-bit": (4, 33.2)}
VIT_H_FULL_GB, LLAMA_FULL_GB = 12.23, 51.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure beside ours.

    Attributes:
        source: Who published it.
        name: What it is.
        unit: Of both.
        published: Their value.
        ours: From ``estimate``.
        within: Largest relative difference that is a match; None where both are known to part.
        note: How ours is made comparable, or why they part.
    """

    source: str
    name: str
    unit: str
    published: float
    ours: float
    within: float | None
    note: str = ""

    @property
    def difference(self) -> float:
        """Ours against theirs, relative."""
        return self.ours / self.published - 1

    @property
    def verdict(self) -> str:
        """Whether they match."""
        if self.within is None:
            return "parts"
        is_same = f"{self.ours:.2f}" == f"{self.published:.2f}"  # as many digits as published
        return "matches" if is_same or abs(self.difference) <= self.within else "MISSED"


def all_figures() -> list[Figure]:
    """Return every figure; four models are traced for them, and nothing is allocated."""
    return [*answer_key(), *vit_h(), *llama2()]


def traced(workload: str, num_devices: int, knobs: dict[str, Sequence[object]]) -> Traced:
    """Trace a model for GPUs, as ``autotune estimate --device cuda`` does where there is none."""
    asked = {"workload": workload, "device": "cuda", "num_devices": num_devices, "deadline": 600.0}
    return trace(Settings.load({**asked, "local": True}), SearchSpace.of(knobs))


def predicted(found: Traced, **knobs: object) -> Prediction:
    """Return what one config takes."""
    return found.predictor.predict([TrainingConfig.from_mapping(knobs)])[0]


def answer_key() -> list[Figure]:
    """Return the maintainers' table of DeepSpeed issues 965 and 1536: T5-3B on 8 GPUs.

    It counts weights, gradients and optimizer state; no activations, and on GPUs no buffers.
    """
    whole, half = (
        traced(reference, NUM_GPUS, {"amp_dtype": ["fp32"]})
        for reference in (f"huggingface:{models.T5_3B}", f"{models.__file__}:T5In16Bits")
    )
    two, two_off, three_off = (
        {"zero_stage": 2},
        {"zero_stage": 2, "offload_target": "cpu"},
        {"zero_stage": 3, "offload_target": "cpu"},
    )
    is_built = "each process builds the model in fp32; x1.5 for buffers, as published"
    rows = [
        ("ZeRO-2, a GPU", 15.93, _resident(predicted(whole, **two)), "weights in fp32"),
        ("ZeRO-2, CPU optimizer, a GPU", 5.31, _resident(predicted(half, **two_off)), "in bf16"),
        ("ZeRO-2, CPU optimizer, host", 127.48, _on_host(whole, two_off), is_built),
        (
            "ZeRO-3, all on CPU, a GPU",
            0.12,
            4 * half.facts.largest_parameter,
            "largest layer in bf16, and its gradient: the least that is gathered; DeepSpeed's own "
            f"settings keep more, {_peak(predicted(half, **three_off)) / GIB:.1f} GiB at the peak",
        ),
        (
            "ZeRO-3, all on CPU, host, zero_init",
            71.71,
            _on_host(half, three_off, is_built=False),
            "weights in bf16, built in shards; x1.5 for buffers, as published",
        ),
        ("ZeRO-3, all on CPU, host", 127.48, _on_host(whole, three_off), is_built),
    ]
    return [
        Figure(
            source="DeepSpeed #965",
            name=name,
            unit="GiB",
            published=published,
            ours=ours / GIB,
            within=KEY_WITHIN,
            note=note,
        )
        for name, published, ours, note in rows
    ]


def _resident(prediction: Prediction) -> int:
    kinds = ("parameters", "gradients", "optimizer_state")
    return sum(prediction.memory[kind] for kind in kinds)


def _on_host(found: Traced, knobs: dict[str, object], *, is_built: bool = True) -> float:
    """Return the bytes of all processes of a host, with published buffers, without libraries.

    Args:
        found: Of the model.
        knobs: Of the config.
        is_built: Whether each process builds the whole model on the host first.
    """
    config = TrainingConfig.from_mapping(knobs)
    kept = found.predictor.kept(config)
    each = max(kept.host, kept.built) if is_built else kept.host
    return HOST_BUFFERS * NUM_GPUS * each


def vit_h() -> list[Figure]:
    """Return what torchao's low-bit states save of a ViT-H under bf16 autocast, 8 images."""
    knobs: dict[str, object] = {"amp_dtype": "bf16", "micro_batch_size": 8}
    found = traced(f"huggingface:{models.VIT_H}", 1, {"amp_dtype": ["bf16"]})
    peaks = {bits: _peak(predicted(found, **knobs, optimizer_bits=bits)) for bits in BITS}
    return [
        Figure(
            source="torchao",
            name=f"ViT-H, {name} saves",
            unit="GB",
            published=VIT_H_FULL_GB - left,
            ours=(peaks[32] - peaks[bits]) / GB,
            within=SAVING_WITHIN,
            note=f"peaks {peaks[32] / GB:.2f} and {peaks[bits] / GB:.2f}, "
            f"published {VIT_H_FULL_GB} and {left} (compiled)",
        )
        for name, (bits, left) in VIT_H_GB.items()
    ]


def llama2() -> list[Figure]:
    """Return what they save of Llama2-7B in bf16, twice: as published, and read as GiB."""
    found = traced(
        f"{models.__file__}:Llama2In16Bits",
        1,
        {"amp_dtype": ["fp32"], "checkpoint_interval": [0, 1]},
    )
    knobs: dict[str, object] = {"micro_batch_size": 2, "checkpoint_interval": 1}
    predictions = {bits: predicted(found, **knobs, optimizer_bits=bits) for bits in BITS}
    peaks = {bits: _peak(prediction) for bits, prediction in predictions.items()}
    figures = []
    for name, (bits, left) in LLAMA_GB.items():
        published, saved = LLAMA_FULL_GB - left, peaks[32] - peaks[bits]
        phases = " and ".join(_phases(predictions[some]) for some in (32, bits))
        as_published = Figure(
            source="torchao",
            name=f"Llama2-7B, {name} saves",
            unit="GB",
            published=published,
            ours=saved / GB,
            within=None,
            note=f"no other phase explains it: {phases}; torchtune, which measured, divides by "
            "2^30 and calls it GB: see the next row",
        )
        as_gib = Figure(
            source="torchao",
            name=f"Llama2-7B, {name} saves, read as GiB",
            unit="GiB",
            published=published,
            ours=saved / GIB,
            within=SAVING_WITHIN,
            note=f"peaks {peaks[32] / GIB:.1f} and {peaks[bits] / GIB:.1f}, "
            f"published {LLAMA_FULL_GB} and {left}",
        )
        figures += [as_published, as_gib]
    return figures


def _peak(prediction: Prediction) -> float:
    """Return the peak with a fused AdamW, which is what was measured, as bytes."""
    return max(_fused(prediction).values())


def _fused(prediction: Prediction) -> dict[str, float]:
    """Return the bytes of each phase, had AdamW been fused.

    Torch's own default, as trials have it, takes the square roots of all tensors at once: as much
    as the gradients, in the step alone.
    """
    config, phases = prediction.config, dict(prediction.phases)
    if config.optimizer_bits == 32 and config.zero_stage == 0:
        phases["step"] -= prediction.memory["gradients"]
    return phases


def _phases(prediction: Prediction) -> str:
    sizes = ", ".join(f"{name} {size / GB:.1f}" for name, size in _fused(prediction).items())
    return f"{prediction.config.optimizer_bits}-bit {sizes} GB"
