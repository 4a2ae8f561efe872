"""A config as the YAML of Lightning's command line, and read back from one."""

from collections.abc import Mapping
from typing import Any

from autotune.errors import UnsupportedExportError
from autotune.exports.base import Exported, Handover, beyond_launchers, commented
from autotune.exports.findings import Findings
from autotune.exports.yaml_text import to_yaml
from search_spaces import AmpDtype, OffloadTarget, Switch, TrainingConfig

PRECISIONS = {
    AmpDtype.FP32: "32-true",
    AmpDtype.TF32: "32-true",
    AmpDtype.BF16: "bf16-mixed",
    AmpDtype.FP16: "16-mixed",
}
OLDER_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""That Lightning still reads, and what each means."""


def export_lightning(handover: Handover) -> Exported:
    """See Exporter. The ``trainer`` section holds arguments of ``lightning.Trainer``."""
    config = handover.config
    _require_plain(config)
    trainer: dict[str, Any] = {
        "accelerator": "gpu" if handover.is_on_cuda else "cpu",
        "devices": handover.num_devices,
        "strategy": "auto" if handover.num_devices == 1 else "ddp",
        "precision": PRECISIONS[config.amp_dtype],
        "accumulate_grad_batches": config.accumulation_steps,
    }
    if handover.steps is not None:
        trainer["max_steps"] = handover.steps
    notes = (_script_note(config),)
    return Exported(text=commented(handover, notes) + to_yaml({"trainer": trainer}), notes=notes)


def is_lightning(document: Mapping[str, Any]) -> bool:
    """Return whether a document is of Lightning's command line."""
    return isinstance(document.get("trainer"), Mapping)


def read_lightning(document: Mapping[str, Any], findings: Findings) -> dict[str, object]:
    """Return the knobs of a document; what is wrong goes to the findings.

    What Lightning has no key for is from our own comment, where we wrote the file.
    """
    trainer = findings.with_numbers(findings.block(document, "trainer"), "trainer.")
    strategy = trainer.get("strategy", "auto")
    if strategy not in ("auto", "ddp"):
        findings.fault(f"trainer.strategy {strategy!r} is no knob here; auto and ddp are")
    said = str(trainer.get("precision", "32-true"))
    known = {text: str(dtype) for dtype, text in reversed(PRECISIONS.items())}
    if said in OLDER_PRECISIONS:
        findings.note(f"trainer.precision {said} is deprecated: {OLDER_PRECISIONS[said]}")
        said = OLDER_PRECISIONS[said]
    if said not in known:
        findings.fault(f"trainer.precision {said!r} is none of {', '.join(known)}")
    is_tf32 = findings.own.get("amp_dtype") == "tf32" and said == PRECISIONS[AmpDtype.TF32]
    return {
        **findings.own,
        "amp_dtype": "tf32" if is_tf32 else known.get(said, "fp32"),
        "accumulation_steps": trainer.get("accumulate_grad_batches", 1),
    }


def _require_plain(config: TrainingConfig) -> None:
    """Refuse what Lightning's own keys would train otherwise than it was measured.

    Raises:
        UnsupportedExportError: The config shards or offloads.
    """
    if config.zero_stage > 0:
        raise UnsupportedExportError(
            f"zero_stage={config.zero_stage} with sharding={config.sharding}: Lightning's own "
            "keys set its precision otherwise than it was measured; for DeepSpeed, write the file "
            "of --format deepspeed and give it to DeepSpeedStrategy(config=FILE)"
        )
    if config.offload_target != OffloadTarget.NONE:
        raise UnsupportedExportError(
            f"offload_target={config.offload_target} at zero_stage=0 is an optimizer's own: build "
            "it in configure_optimizers(), and take --format toml for the rest"
        )


def _script_note(config: TrainingConfig) -> str:
    compiled = ["compile=on"] if config.compile == Switch.ON else []
    names = [
        f"micro_batch_size={config.micro_batch_size} (of the DataLoader)",
        f"optimizer={config.optimizer}",
        f"optimizer_bits={config.optimizer_bits}",
        *beyond_launchers(config),
        *compiled,
    ]
    return f"your module sets what Lightning's trainer has no key for: {', '.join(names)}"
