"""Configs in the words of other programs, and theirs in ours. Loads none of those programs."""

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.documents import EXPORT_FORMATS, export_config
from autotune.errors import SettingsError
from autotune.exports.accelerate import export_accelerate
from autotune.exports.axolotl import export_axolotl
from autotune.exports.base import Exported, Exporter, Handover
from autotune.exports.deepspeed import export_deepspeed
from autotune.exports.environment import export_environment, export_shell
from autotune.exports.findings import Reading
from autotune.exports.lightning import export_lightning
from autotune.exports.llama_factory import export_llama_factory
from autotune.exports.ray_train import export_ray_train
from autotune.exports.reading import read_config
from autotune.exports.torchtune import export_torchtune
from autotune.exports.transformers import export_transformers

__all__ = ["EXPORTERS", "PAIRED", "Bundle", "Handover", "Reading", "export_bundle", "read_config"]


def _own(form: str) -> Exporter:
    def write(handover: Handover) -> Exported:
        study, now = handover.study, handover.now
        return Exported(text=export_config(handover.trial, study, form=form, now=now))

    return write


EXPORTERS: dict[str, Exporter] = {
    **{form: _own(form) for form in EXPORT_FORMATS},
    "deepspeed": export_deepspeed,
    "transformers": export_transformers,
    "accelerate": export_accelerate,
    "lightning": export_lightning,
    "torchtune": export_torchtune,
    "axolotl": export_axolotl,
    "llama-factory": export_llama_factory,
    "ray-train": export_ray_train,
    "env": export_environment,
    "shell": export_shell,
}
PAIRED = ("transformers", "accelerate", "axolotl", "llama-factory")
"""Those that name a DeepSpeed file, which is then written beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An export, whole.

    Attributes:
        text: The file itself.
        beside: Path and text of each file that belongs to it.
        notes: What it does not say, or says otherwise, for people.
    """

    text: str
    beside: tuple[tuple[Path, str], ...] = ()
    notes: tuple[str, ...] = ()


def export_bundle(handover: Handover, *, form: str, pair: str | None, to: Path | None) -> Bundle:
    """Return a trial's config as a format has it, with the files that go with it.

    Args:
        handover: The trial.
        form: One of ``EXPORTERS``.
        pair: ``deepspeed`` for the two files that belong together; None for one.
        to: Where it will be written; None for standard output.

    Raises:
        SettingsError: No such format, or no such pair.
        UnsupportedExportError: The format cannot express the config.
    """
    if form not in EXPORTERS:
        raise SettingsError(f"no export format {form!r}; known: {', '.join(EXPORTERS)}")
    beside: list[tuple[Path, str]] = []
    if pair is not None:
        partner = _beside(_pair_target(form, pair, to), "deepspeed")
        beside.append((partner, export_deepspeed(handover).text))
        handover = replace(handover, partner=str(partner))
    exported = EXPORTERS[form](handover)
    if exported.has_side_file and to is not None:
        beside.append((_beside(to, "autotune"), _own("json")(handover).text))
    return Bundle(text=exported.text, beside=tuple(beside), notes=exported.notes)


def _pair_target(form: str, pair: str, to: Path | None) -> Path:
    if pair != "deepspeed" or form not in PAIRED:
        raise SettingsError(
            f"--pair {pair} with --format {form}: a DeepSpeed JSON goes with "
            f"{' or '.join(PAIRED)}, as --format {PAIRED[0]} --pair deepspeed"
        )
    if to is None:
        raise SettingsError("--pair writes two files: say where with --to FILE")
    return to


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.stem}.{kind}.json")
