"""A config for a launch script: as environment variables, or as words of a command line."""

import itertools
import shlex

from autotune.exports.base import Exported, Handover, commented
from search_spaces import KNOBS, OffloadTarget

PREFIX = "TRAIN_"
"""Of each variable; autotune's own settings begin otherwise."""


def export_environment(handover: Handover) -> Exported:
    """See Exporter. One ``NAME=value`` a line, for a shell and for container runtimes."""
    lines = (f"{name}={shlex.quote(value)}" for name, value in variables_of(handover).items())
    return Exported(text=commented(handover, ()) + "\n".join(lines) + "\n")


def export_shell(handover: Handover) -> Exported:
    """See Exporter. One line of ``--name value`` words, for ``$(...)`` in a launch script."""
    flags = (f"--{n.replace('_', '-')} {shlex.quote(v)}" for n, v in _values(handover).items())
    return Exported(text=" ".join(flags) + "\n", notes=(handover.title,), has_side_file=True)


def variables_of(handover: Handover) -> dict[str, str]:
    """Return a config as environment variables."""
    return {f"{PREFIX}{name.upper()}": value for name, value in _values(handover).items()}


def _values(handover: Handover) -> dict[str, str]:
    """Return every knob, and what makes the batch identity whole."""
    values = {name: str(value) for name, value in handover.config.as_dict().items()}
    values |= {
        "num_devices": str(handover.num_devices),
        "global_batch_size": str(handover.global_batch_size),
    }
    if handover.learning_rate is not None:
        values["learning_rate"] = str(handover.learning_rate)
    if handover.steps is not None:
        values["steps"] = str(handover.steps)
    path = handover.study.spec.nvme_path
    if handover.config.offload_target == OffloadTarget.NVME and path is not None:
        values["nvme_path"] = path
    return values


def knobs_of_environment(text: str) -> dict[str, str]:
    """Return the knobs that lines of ``NAME=value`` set; other lines are somebody else's."""
    words = shlex.split(text, comments=True)
    pairs = (word.partition("=") for word in words if word.startswith(PREFIX))
    return _knobs({name.removeprefix(PREFIX).lower(): value for name, _, value in pairs})


def knobs_of_shell(text: str) -> dict[str, str]:
    """Return the knobs that words of ``--name value`` set; other words are somebody else's."""
    words = shlex.split(text, comments=True)
    pairs = itertools.pairwise(words)
    flags = {flag: value for flag, value in pairs if flag.startswith("--")}
    return _knobs({flag[2:].replace("-", "_"): value for flag, value in flags.items()})


def _knobs(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name in KNOBS}
