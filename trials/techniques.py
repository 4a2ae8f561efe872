"""Which optional techniques a machine lacks, and why, in words that the rules can show."""

from pathlib import Path

import torch

from search_spaces import OffloadTarget
from trials.adapters import missing_lora
from trials.low_bit import missing_4bit, missing_8bit, missing_8bit_on_cpu
from trials.zero import missing_nvme_folder, missing_offload, missing_zero


def missing_techniques(device: torch.device, nvme_path: str | None) -> tuple[tuple[str, str], ...]:
    """Return what cannot be used on a device here, by the names in ``DeviceFacts.missing``.

    Args:
        device: Where trials run.
        nvme_path: Folder that state may be offloaded to.
    """
    folder = None if nvme_path is None else Path(nvme_path)
    reasons = {
        "8-bit": missing_8bit(),
        "4-bit": missing_4bit(),
        "8-bit-on-cpu": missing_8bit_on_cpu(),
        "lora": missing_lora(),
        "zero": missing_zero(device.type),
        "offload-cpu": missing_offload(OffloadTarget.CPU),
        "offload-nvme": missing_offload(OffloadTarget.NVME) or missing_nvme_folder(folder),
        "compile": _missing_compile(device),
    }
    return tuple((name, why) for name, why in reasons.items() if why is not None)


def _missing_compile(device: torch.device) -> str | None:
    if device.type == "cuda":
        return None
    return (
        "compile=on is measured on CUDA alone (on a CPU the compiler's memory would count as the "
        "trial's); take a GPU"
    )
