"""What searches a table: anything that asks places in it and is told what is there."""

import importlib
import random
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from autotune.optimizer.sampler import SpaceSampler
from search_spaces import TrainingConfig
from tests.benchmarks.replay.errors import TableError
from tests.benchmarks.replay.table import Entry, Table


class Sampler(Protocol):
    """Chooses the configs of a study, one at a time.

    A sampler is made for one study, from a table and a seed. Of the table it may use the header,
    the configs and, if it is one that predicts, the priors; what trials found it is told.
    """

    def ask(self) -> int | None:
        """Return the place in the table of the next config to try; None ends the study."""

    def tell(self, place: int, entry: Entry) -> None:
        """Take in what the trial of a config found."""


Maker = Callable[[Table, int], Sampler]


class RandomOrder:
    """Every config once, in an order drawn at first."""

    def __init__(self, table: Table, seed: int) -> None:
        """Draw the order."""
        places = range(len(table.entries))
        self._order = iter(random.Random(seed).sample(places, len(places)))

    def ask(self) -> int | None:
        """See Sampler."""
        return next(self._order, None)

    def tell(self, place: int, entry: Entry) -> None:
        """See Sampler."""


class _InItsWay(SpaceSampler):
    """Lets the inner sampler say which knobs it samples together, as Optuna does."""

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See SpaceSampler."""
        together = self._inner.infer_relative_search_space(study, trial)
        proposal = self._inner.sample_relative(study, trial, together)
        for name, distribution in self.distributions.items():
            if name not in proposal:
                proposal[name] = self._inner.sample_independent(study, trial, name, distribution)
        chosen = self._nearest_open(proposal).as_dict()
        return {name: chosen[name] for name in self.distributions}


class OptunaSearch:
    """One of Optuna's samplers, told as autotune tells it.

    What it proposes is moved to the nearest config that is in the table and not tried yet, so
    that no sampler spends trials on what it knows, or on what is no config.
    """

    def __init__(self, inner: BaseSampler, table: Table) -> None:
        """Begin a study in memory."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._table = table
        self._places = {config: place for place, config in enumerate(table.configs)}
        self._space = _InItsWay(inner, table.configs)
        directions = [str(direction) for direction in table.directions]
        self._study = optuna.create_study(directions=directions, sampler=self._space)
        self._asked: dict[int, Trial] = {}
        self._worst: list[float] | None = None

    def ask(self) -> int | None:
        """See Sampler."""
        if not self._space.has_open:
            return None
        trial = self._study.ask(fixed_distributions=self._space.distributions)
        config = self._space.config_of(trial.params)
        self._space.close_configs([config])
        place = self._places[config]
        self._asked[place] = trial
        return place

    def tell(self, place: int, entry: Entry) -> None:
        """See Sampler. What did not complete has the worst values so far."""
        trial = self._asked.pop(place)
        for name, value in sorted(entry.constraints.items()):
            trial.set_constraint(name, value)
        if entry.is_feasible:
            values = [entry.value(axis) for axis in self._table.header.objectives]
            self._worst = self._worse(values)
        else:
            values = self._worst or [0.0] * len(self._table.directions)
        self._study.tell(trial, values=values)

    def _worse(self, values: list[float]) -> list[float]:
        signs, worst = self._table.signs, self._worst or values
        return [
            max(old, new, key=lambda value, sign=sign: sign * value)
            for old, new, sign in zip(worst, values, signs, strict=True)
        ]


class Rule:
    """The practitioner's: double the micro-batch until it fails, then save memory step by step.

    What failed is tried again with checkpointing, then with 8-bit state too, then with offload
    too, and each that runs is doubled again. After the largest micro-batch the savings that are
    left are tried with it. Whatever is in no config of the table is left out.
    """

    SAVINGS = ({"checkpoint_interval": 1}, {"optimizer_bits": 8}, {"offload_target": "cpu"})

    def __init__(self, table: Table, seed: int) -> None:
        """Begin with what is plain: no saving, and the smallest micro-batch."""
        self._places = {config: place for place, config in enumerate(table.configs)}
        self._batches = sorted({config.micro_batch_size for config in table.configs})
        self._steps = [{}, *self.SAVINGS]
        self._knobs: dict[str, object] = {}
        self._size = 0

    def ask(self) -> int | None:
        """See Sampler."""
        while self._steps:
            fitting = [c for c in self._places if self._is_next(c)]
            if fitting:
                return self._places[min(fitting, key=_plainness)]
            self._save_more()
        return None

    def tell(self, place: int, entry: Entry) -> None:
        """See Sampler."""
        if entry.is_feasible and self._size + 1 < len(self._batches):
            self._size += 1
        else:
            self._save_more()

    def _save_more(self) -> None:
        self._steps = self._steps[1:]
        self._knobs |= self._steps[0] if self._steps else {}

    def _is_next(self, config: TrainingConfig) -> bool:
        values = config.as_dict()
        is_asked = all(values[name] == value for name, value in self._knobs.items())
        return is_asked and config.micro_batch_size == self._batches[self._size]


def _plainness(config: TrainingConfig) -> tuple[object, ...]:
    """Order configs by how far they are from the defaults."""
    usual = TrainingConfig().as_dict()
    values = config.as_dict()
    changed = [name for name in usual if values[name] != usual[name]]
    return len(set(changed) - {"micro_batch_size", "accumulation_steps"}), str(config)


def _quietly(make: Callable[[int], BaseSampler]) -> Maker:
    def made(table: Table, seed: int) -> Sampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return OptunaSearch(make(seed), table)

    return made


def _nehvi(table: Table, seed: int) -> Sampler:
    from tests.benchmarks.replay.physicsless import PlainNehvi  # BoTorch takes seconds to load

    return PlainNehvi(table, seed)


def _ours(table: Table, seed: int) -> Sampler:
    from tests.benchmarks.replay.ours import with_prior  # it builds on this module

    return with_prior(table, seed)


def _ours_without_prior(table: Table, seed: int) -> Sampler:
    from tests.benchmarks.replay.ours import without_prior

    return without_prior(table, seed)


def _ours_misled(table: Table, seed: int) -> Sampler:
    return _ours(table.with_inverted_prior(), seed)


SAMPLERS: dict[str, Maker] = {
    "random": RandomOrder,
    "tpe": _quietly(lambda seed: TPESampler(seed=seed)),
    "tpe-multivariate": _quietly(lambda seed: TPESampler(multivariate=True, seed=seed)),
    "nsga2": _quietly(lambda seed: NSGAIISampler(seed=seed)),
    "gp": _quietly(lambda seed: GPSampler(seed=seed)),
    "qlognehvi": _nehvi,
    "rule": Rule,
    "frontier": _ours,
    "frontier-no-prior": _ours_without_prior,
    "frontier@inverted": _ours_misled,
}
SLOW = {"gp", "qlognehvi"}
"""Those that take a second or more for each trial."""
FIXED = {"rule"}
"""Those that do not depend on the seed."""


INVERTED = "@inverted"
"""Behind a sampler's name: it is given the prior turned round."""


def sampler_maker(name: str) -> Maker:
    """Return how a sampler is made.

    Args:
        name: One of ``SAMPLERS``, or ``module:function`` of a maker of one's own; with
            ``@inverted`` behind it, its table has the prior inverted.

    Raises:
        TableError: There is no such sampler.
    """
    if name in SAMPLERS:
        return SAMPLERS[name]
    if name.endswith(INVERTED):
        make = sampler_maker(name.removesuffix(INVERTED))
        return lambda table, seed: make(table.with_inverted_prior(), seed)
    if ":" in name:
        return _imported(name)
    known = ", ".join(SAMPLERS)
    raise TableError(f"no sampler {name!r}; there are {known}, and module:function")


def _imported(name: str) -> Maker:
    module, _, function = name.partition(":")
    try:
        maker: Maker = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise TableError(f"no sampler {name!r}: {error}") from error
    return maker
