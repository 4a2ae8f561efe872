"""GPUs by name: memory, compute capability, and what their data sheets say of their speed."""

import csv
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from search_spaces import AmpDtype

MEMORY_TOLERANCE = 0.15
"""Share by which sources differ on one card's memory: 24 GB are 22.35 GiB, and 22.5 usable."""
_FILLERS = re.compile(
    r"NVIDIA|TESLA|GEFORCE|QUADRO|GENERATION|BLACKWELL|WORKSTATION|SERVER|EDITION|MEGA"
    r"|SXM\d?|PCIE|HBM\d\w?|\d+GB|[^A-Z0-9]"
)
_MEMORY = re.compile(r"(\d+)\s?GB", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A model of GPU.

    Attributes:
        name: Without maker and form, like ``A100``.
        memory_gib: As it is sold, in GiB; drivers keep a few per cent of it.
        capability: Compute capability; None where it is not known.
        fp32_tflops: Peak of dense fp32, in TFLOP/s; None where it is not known.
        tf32_tflops: Likewise, in TF32.
        half_tflops: Likewise, in bf16 or fp16.
        gb_per_second: Peak bandwidth of its memory.
    """

    name: str
    memory_gib: float
    capability: tuple[int, int] | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    half_tflops: float | None = None
    gb_per_second: float | None = None

    def __str__(self) -> str:
        """Name the model and its memory."""
        return f"{self.name} {self.memory_gib:g}GB"

    def tflops(self, dtype: AmpDtype) -> float | None:
        """Return the peak rate of matrix products under an autocast dtype."""
        return {
            AmpDtype.FP32: self.fp32_tflops,
            AmpDtype.TF32: self.tf32_tflops,
            AmpDtype.BF16: self.half_tflops,
            AmpDtype.FP16: self.half_tflops,
        }[dtype]


def short_name(text: str) -> str:
    """Return the model's name out of a driver's or a catalogue's, like ``A100``."""
    name = _FILLERS.sub("", text.upper())
    return re.sub(r"^RTX(A\d{4})$", r"\1", name)


@lru_cache(maxsize=4096)
def find_gpu(text: str, memory_gib: float | None = None) -> Gpu | None:
    """Return the model that a name means; None if none is known, or the memory leaves it open.

    Args:
        text: As a driver, a catalogue or a person writes it.
        memory_gib: Of the card, where it is known.
    """
    models = known_gpus().get(short_name(text), ())
    written = [float(size) for size in _MEMORY.findall(text)]
    exact = [gpu for gpu in models if gpu.memory_gib in written]
    if len(exact) == 1:
        return exact[0]
    if memory_gib is None:
        return models[0] if len(models) == 1 else None
    return next((gpu for gpu in models if agrees(gpu, memory_gib)), None)


def agrees(gpu: Gpu, memory_gib: float) -> bool:
    """Tell whether a figure can be this model's memory, in GiB."""
    return abs(memory_gib - gpu.memory_gib) <= MEMORY_TOLERANCE * gpu.memory_gib


def bounds_of_slowdown(here: Gpu, there: Gpu, dtype: AmpDtype) -> tuple[float, float] | None:
    """Return between which factors a step's time changes from one model to another.

    Source: the roofline. What is bound by arithmetic changes as the peak rates do, what is bound
    by memory as the bandwidths do, and a step is a mixture of both at equal efficiency.

    Returns:
        The smaller and the larger factor; None where a data sheet's figure is missing.
    """
    rates = (here.tflops(dtype), there.tflops(dtype), here.gb_per_second, there.gb_per_second)
    if any(rate is None for rate in rates):
        return None
    rate_here, rate_there, bytes_here, bytes_there = (float(rate or 0) for rate in rates)
    factors = (rate_here / rate_there, bytes_here / bytes_there)
    return min(factors), max(factors)


@cache
def known_gpus() -> dict[str, tuple[Gpu, ...]]:
    """Return the table of models by name. Speeds are those of NVIDIA's data sheets, dense."""
    text = files("autotune.prices").joinpath("gpus.csv").read_text(encoding="utf-8")
    found: dict[str, tuple[Gpu, ...]] = {}
    for row in csv.DictReader(text.splitlines()):
        gpu = Gpu(
            name=row["gpu"],
            memory_gib=float(row["memory_gib"]),
            capability=parse_capability(row["compute_capability"]),
            fp32_tflops=_number(row["fp32_tflops"]),
            tf32_tflops=_number(row["tf32_tflops"]),
            half_tflops=_number(row["half_tflops"]),
            gb_per_second=_number(row["gb_per_second"]),
        )
        key = short_name(gpu.name)
        found[key] = (*found.get(key, ()), gpu)
    return found


def parse_capability(text: str) -> tuple[int, int]:
    """Read ``8.0``.

    Raises:
        ValueError: It is not two whole numbers around a point.
    """
    major, minor = text.split(".")
    return int(major), int(minor)


def _number(text: str) -> float | None:
    return float(text) if text else None
