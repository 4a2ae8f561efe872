"""What a trial's config needs of the machine that will train with it."""

from typing import Any

from autotune.records import StudyRecord, TrialRecord
from search_spaces import TECHNIQUES, AmpDtype, OffloadTarget, TrainingConfig

CAPABILITY = "8.0"
"""Of an NVIDIA GPU, for bf16 and TF32."""
PACKAGE_OF = {
    "8-bit": "bitsandbytes",
    "8-bit-on-cpu": "bitsandbytes",
    "4-bit": "torchao",
    "lora": "peft",
    "zero": "deepspeed",
    "offload-cpu": "deepspeed",
    "offload-nvme": "deepspeed",
}
"""What the techniques of ``search_spaces`` need beside torch; others need nothing more."""


def needs_of(trial: TrialRecord, study: StudyRecord) -> dict[str, Any]:
    """Return the needs by name; one that there is none of is left out.

    Returns:
        ``compute_capability``, ``device_memory_bytes`` and ``host_memory_bytes`` of each device
        as measured, ``nvme_path``, and ``packages`` with the versions that were measured.
    """
    config, environment = trial.config, study.environment
    memory = None if trial.measurement is None else trial.measurement.memory
    is_new = config.amp_dtype in (AmpDtype.BF16, AmpDtype.TF32)
    found = {
        "compute_capability": CAPABILITY if is_new and environment.device_kind == "cuda" else None,
        "device_memory_bytes": None if memory is None else memory.peak_device_bytes,
        "host_memory_bytes": None if memory is None else memory.peak_host_bytes,
        "nvme_path": study.spec.nvme_path if config.offload_target == OffloadTarget.NVME else None,
        "packages": _packages(config, study),
    }
    return {name: value for name, value in found.items() if value is not None}


def _packages(config: TrainingConfig, study: StudyRecord) -> list[str]:
    environment = study.environment
    measured = {
        "torch": environment.torch,
        "bitsandbytes": environment.bitsandbytes,
        "torchao": environment.torchao,
        "peft": environment.peft,
        "deepspeed": environment.deepspeed,
    }
    used = {package for name, package in PACKAGE_OF.items() if TECHNIQUES[name](config)}
    return [
        f"{name}=={version}" if version else name
        for name, version in measured.items()
        if name == "torch" or name in used
    ]
