"""Configs in the words of other programs, and theirs in ours. Loads none of those programs."""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from autotune.documents import EXPORT_FORMATS, export_config
from autotune.errors import SettingsError
from autotune.exports.base import Exported, Exporter, Handover
from autotune.exports.findings import Reading

__all__ = ["EXPORTERS", "PAIRED", "Bundle", "Handover", "Reading", "export_bundle", "read_config"]

EXPORTERS = {
    **dict.fromkeys(EXPORT_FORMATS, ""),
    "deepspeed": "deepspeed:export_deepspeed",
    "transformers": "transformers:export_transformers",
    "accelerate": "accelerate:export_accelerate",
    "lightning": "lightning:export_lightning",
    "torchtune": "torchtune:export_torchtune",
    "axolotl": "axolotl:export_axolotl",
    "llama-factory": "llama_factory:export_llama_factory",
    "ray-train": "ray_train:export_ray_train",
    "env": "environment:export_environment",
    "shell": "environment:export_shell",
}
"""Formats, and where the exporter of each is: one export loads no other's. Ours are empty."""
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
        beside.append((partner, _exporter("deepspeed")(handover).text))
        handover = replace(handover, partner=str(partner))
    exported = _exporter(form)(handover)
    if exported.has_side_file and to is not None:
        beside.append((_beside(to, "autotune"), _export_own(handover, "json").text))
    return Bundle(text=exported.text, beside=tuple(beside), notes=exported.notes)


def read_config(path: Path) -> Reading:
    """See ``autotune.exports.reading``, which knows every format and is loaded when it is used."""
    from autotune.exports.reading import read_config

    return read_config(path)


def _exporter(form: str) -> Exporter:
    module, _, name = EXPORTERS[form].partition(":")
    if not module:
        return lambda handover: _export_own(handover, form)
    exporter: Exporter = getattr(import_module(f"autotune.exports.{module}"), name)
    return exporter


def _export_own(handover: Handover, form: str) -> Exported:
    study, now = handover.study, handover.now
    return Exported(text=export_config(handover.trial, study, form=form, now=now))


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
