"""What an export is made of, and what it is: the protocol of a format."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from autotune.documents import export_document
from autotune.errors import UnsupportedExportError
from autotune.records import StudyRecord, TrialRecord
from search_spaces import (
    ActivationOffload,
    AmpDtype,
    OffloadTarget,
    Sharding,
    Switch,
    TrainingConfig,
)
from search_spaces.update_rules import UPDATE_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A trial on its way to the program that will train.

    Attributes:
        trial: Whose config is handed over.
        study: Its study.
        now: UTC.
        steps: Optimizer steps of the training to come, where they are to be pinned.
        partner: Path of the DeepSpeed JSON written beside, where two files belong together.
    """

    trial: TrialRecord
    study: StudyRecord
    now: datetime
    steps: int | None = None
    partner: str | None = None

    @property
    def config(self) -> TrainingConfig:
        """What is handed over."""
        return self.trial.config

    @property
    def num_devices(self) -> int:
        """Data-parallel devices of the job."""
        return self.study.spec.space.num_devices

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step: micro-batch x accumulation x devices."""
        return self.config.effective_batch_size(self.num_devices)

    @property
    def is_on_cuda(self) -> bool:
        """Whether the trial ran on a GPU."""
        return self.study.environment.device_kind == "cuda"

    @property
    def learning_rate(self) -> float | None:
        """Of the config's own optimizer, as the trial had it; None where it is not known."""
        rate = self.study.facts.learning_rate
        return None if rate is None else rate * UPDATE_RULES[self.config.optimizer].relative_rate

    @property
    def title(self) -> str:
        """Study, trial and date on one line."""
        return f"autotune {self.trial.study} trial {self.trial.number} {self.now:%Y-%m-%dT%H:%MZ}"

    def document(self) -> dict[str, Any]:
        """Return everything that is known of the trial, for a side key or a side file."""
        return export_document(self.trial, self.study, self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A config in another program's words.

    Attributes:
        text: The file.
        notes: What the format does not say, or says otherwise, for people.
        has_side_file: Whether the text has no room for where it is from and what it needs.
    """

    text: str
    notes: tuple[str, ...] = ()
    has_side_file: bool = False


class Exporter(Protocol):
    """Puts a config into one format."""

    def __call__(self, handover: Handover) -> Exported:
        """Return the file.

        Raises:
            UnsupportedExportError: The format cannot express the config; the message names the
                knob and what to do.
        """
        ...


def require_deepspeed(config: TrainingConfig) -> None:
    """Refuse what shards or offloads by other means where a file describes DeepSpeed's.

    Raises:
        UnsupportedExportError: The config does; the message names the knob.
    """
    elsewhere = "export it with --format toml or env, and do it in your script"
    if config.zero_stage and config.sharding == Sharding.FSDP:
        raise UnsupportedExportError(f"sharding=fsdp is PyTorch's fully_shard: {elsewhere}")
    if config.zero_stage == 0 and config.offload_target != OffloadTarget.NONE:
        raise UnsupportedExportError(
            f"offload_target={config.offload_target} at zero_stage=0 is an optimizer's own, "
            f"not DeepSpeed's: {elsewhere}"
        )


def scripts_own(config: TrainingConfig) -> list[str]:
    """Name the knobs in use that no program's file has a key for: the script must do them."""
    used = {
        f"lora_rank={config.lora_rank}": config.lora_rank > 0,
        f"weight_bits={config.weight_bits}": config.weight_bits < 32,
        "optimizer_in_backward=on": config.optimizer_in_backward == Switch.ON,
    }
    return [name for name, is_used in used.items() if is_used]


def beyond_launchers(config: TrainingConfig) -> list[str]:
    """Name the knobs in use that files for DeepSpeed and accelerate have no key for."""
    used = {
        f"checkpoint_interval={config.checkpoint_interval}": config.checkpoint_interval > 0,
        f"checkpoint_deepest={config.checkpoint_deepest}": config.checkpoint_deepest > 0,
        "activation_offload=cpu": config.activation_offload != ActivationOffload.NONE,
        "amp_dtype=tf32": config.amp_dtype == AmpDtype.TF32,
    }
    return [*(name for name, is_used in used.items() if is_used), *scripts_own(config)]


COMMENT = "# autotune: "
"""Begins the line of a YAML or environment file that holds where it is from, as JSON."""


def commented(handover: Handover, notes: tuple[str, ...]) -> str:
    """Return comment lines: where a file is from, what it needs, and what it does not say."""
    about = json.dumps(handover.document())
    return "".join(f"{line}\n" for line in (COMMENT + about, *(f"# {note}" for note in notes)))
