"""What may be tried: configs, spaces and rules. Standard library only."""

from search_spaces.batch import config_of_batch
from search_spaces.config import (
    KNOBS,
    ActivationOffload,
    AmpDtype,
    KnobValue,
    NumericsClass,
    OffloadTarget,
    Optimizer,
    Sharding,
    Switch,
    TrainingConfig,
    did_you_mean,
    parse_knob,
    stable_hash,
)
from search_spaces.errors import EmptySpaceError, InvalidConfigError
from search_spaces.presets import PRESETS, load_space
from search_spaces.rules import RULES, TECHNIQUES, DeviceFacts, Rule, refusal
from search_spaces.space import Exclusion, SearchSpace
from search_spaces.zero_memory import JobFacts, too_much_for_disk

__all__ = [
    "KNOBS",
    "PRESETS",
    "RULES",
    "TECHNIQUES",
    "ActivationOffload",
    "AmpDtype",
    "DeviceFacts",
    "EmptySpaceError",
    "Exclusion",
    "InvalidConfigError",
    "JobFacts",
    "KnobValue",
    "NumericsClass",
    "OffloadTarget",
    "Optimizer",
    "Rule",
    "SearchSpace",
    "Sharding",
    "Switch",
    "TrainingConfig",
    "config_of_batch",
    "did_you_mean",
    "load_space",
    "parse_knob",
    "refusal",
    "stable_hash",
    "too_much_for_disk",
]
