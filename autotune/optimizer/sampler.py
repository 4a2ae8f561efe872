"""A sampler that only proposes open members of an enumerated space.

The seam for samplers: any of Optuna's may stand behind it. It proposes; the nearest config that
is a member of the space, and neither tried nor ruled out, is what gets asked.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import SettingsError
from autotune.optimizer.frontier.sampler import FrontierSampler
from autotune.optimizer.trend import likely_to_fit, memory_features
from search_spaces import KNOBS, KnobValue, TrainingConfig, did_you_mean

FRONTIER = "frontier"
LEAST_SHOWN = 0.001
"""Gain below which no number is shown."""
GENERAL: dict[str, Callable[[int], BaseSampler]] = {
    # No constant liar: what is under way is closed here already, and the liar costs transactions.
    "tpe": lambda seed: TPESampler(multivariate=True, constant_liar=False, seed=seed),
    "gp": lambda seed: GPSampler(seed=seed),
    "nsga2": lambda seed: NSGAIISampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}
GRID = "grid"
WRITING = frozenset({"gp", "nsga2"})
"""Those that note something with a trial while they propose: it must be stored by then."""
SAMPLERS = (FRONTIER, *GENERAL, GRID)


def require_sampler(name: str) -> None:
    """Let the name of a sampler pass.

    Raises:
        SettingsError: There is no such sampler; the message names those there are.
    """
    if name not in SAMPLERS:
        raise SettingsError(f"no sampler {name!r}{did_you_mean(name, SAMPLERS)}")


class GridOrder(BaseSampler):
    """Proposes every config of a space in its order, whatever came of the others."""

    def __init__(self, configs: Sequence[TrainingConfig]) -> None:
        """Go through these configs."""
        self._points = [config.as_dict() for config in configs]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return nothing of its own; see BaseSampler."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the first config that no trial has; see BaseSampler."""
        names = list(search_space)
        tried = {
            tuple(t.params[name] for name in names)
            for t in study.get_trials(deepcopy=False)
            if t.params.keys() >= search_space.keys()
        }
        found = (p for p in self._points if tuple(p[name] for name in names) not in tried)
        first = next(found, self._points[0])
        return {name: first[name] for name in names}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the first config's value; see BaseSampler."""
        return self._points[0][param_name]


class SpaceSampler(BaseSampler):
    """Snaps another sampler's proposals to the open configs of a space.

    Attributes:
        distributions: Optuna's distribution of each knob that varies.
    """

    def __init__(self, inner: BaseSampler, configs: Sequence[TrainingConfig]) -> None:
        """Wrap a sampler.

        Args:
            inner: Proposes points of the space's bounding box.
            configs: Every member of the space.
        """
        self._inner = inner
        self._configs = list(configs)
        self._frontier = inner if isinstance(inner, FrontierSampler) else None
        self._is_steered = not isinstance(inner, GridOrder)
        self.distributions = knob_distributions(configs)
        self._index = {config: place for place, config in enumerate(configs)}
        points = [config.as_dict() for config in configs]
        self._by_values = {
            self._values(point): c for point, c in zip(points, configs, strict=True)
        }
        self._grid = np.array([self._position(point) for point in points], dtype=float)
        self._is_open = np.ones(len(configs), dtype=np.bool_)
        self._features = memory_features(configs)
        self._memory: dict[int, float] = {}

    @property
    def has_open(self) -> bool:
        """Whether any config may still be asked."""
        return bool(self._is_open.any())

    @property
    def best_gain(self) -> float | None:
        """What the best open config is expected to add to the front, relative to it."""
        choice = None if self._frontier is None else self._frontier.last
        return None if choice is None else choice.best_gain

    @property
    def why(self) -> str:
        """What the latest proposal was expected to bring; empty where the sampler knows not."""
        choice = None if self._frontier is None else self._frontier.last
        if choice is None:
            return ""
        if choice.gain is None:
            return f"first of the expected front, {choice.fits:.0%} likely to fit"
        gain = f"add {choice.gain:.1%} to" if choice.gain < 1 else "more than double"
        if choice.gain < LEAST_SHOWN:
            gain = f"add less than {LEAST_SHOWN:.1%} to"
        return f"expected to {gain} the front, {choice.fits:.0%} likely to fit"

    def close_configs(self, configs: Collection[TrainingConfig]) -> None:
        """Never ask these configs again, except when they are enqueued."""
        for config in configs:
            self._is_open[self._index[config]] = False
        if self._frontier is not None:
            self._frontier.close_configs(configs)

    def open_configs(self) -> list[TrainingConfig]:
        """Return the configs that may still be asked."""
        return [self._configs[place] for place in np.flatnonzero(self._is_open)]

    def learn(self, config: TrainingConfig, memory_violation: float) -> None:
        """Take in how much of the memory budget a config took, less 1."""
        self._memory[self._index[config]] = memory_violation

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return every knob that varies; see BaseSampler."""
        return dict(self.distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return an open config near the inner sampler's proposal; see BaseSampler."""
        # Every trial has every knob: there is no need to look for those that all have.
        proposal = self._inner.sample_relative(study, trial, search_space)
        for name, distribution in self.distributions.items():
            if name not in proposal:
                proposal[name] = self._inner.sample_independent(study, trial, name, distribution)
        chosen = self._nearest_open(proposal).as_dict()
        return {name: chosen[name] for name in self.distributions}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Leave knobs beside the space to the inner sampler; see BaseSampler."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """See BaseSampler."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """See BaseSampler."""
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """See BaseSampler."""
        self._inner.reseed_rng()

    def config_of(self, params: dict[str, Any]) -> TrainingConfig:
        """Return the member of the space with these values of the varying knobs."""
        return self._by_values[self._values(params)]

    def _values(self, params: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(params[name] for name in self.distributions)

    def _nearest_open(self, proposal: dict[str, Any]) -> TrainingConfig:
        """Return the open config nearest to a proposal, of the likely ones if there are any.

        What the frontier model proposes is open already, and weighed with its memory.
        """
        if self._frontier is not None and self._frontier.last is not None:
            return self.config_of(proposal)
        tried, violations = list(self._memory), list(self._memory.values())
        wanted = self._is_open & likely_to_fit(self._features, tried, violations)
        if not (self._is_steered and wanted.any()):
            wanted = self._is_open
        distance = np.abs(self._grid - self._position(proposal)).sum(axis=1)
        distance[~wanted] = np.inf
        return self._configs[int(distance.argmin())]

    def _position(self, values: dict[str, Any]) -> list[float]:
        """Return a point's place in the unit box: numbers by log or share, names one-hot."""
        place: list[float] = []
        for name, distribution in self.distributions.items():
            if isinstance(distribution, IntDistribution):
                place.append(_share(values[name], distribution))
            elif isinstance(distribution, CategoricalDistribution):
                place.extend(float(values[name] == choice) / 2 for choice in distribution.choices)
        return place


def knob_distributions(configs: Sequence[TrainingConfig]) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each knob that varies independently over a space.

    Accumulation that follows from the micro-batch is left out: it is no choice. A space of one
    config keeps its micro-batch, since Optuna needs a parameter.
    """
    points = [config.as_dict() for config in configs]
    varying = {name: sorted({p[name] for p in points}, key=str) for name in KNOBS}
    splits = {(p["micro_batch_size"], p["accumulation_steps"]) for p in points}
    if len(splits) == len(varying["micro_batch_size"]):
        del varying["accumulation_steps"]
    kept = {name: values for name, values in varying.items() if len(values) > 1}
    kept = kept or {"micro_batch_size": varying["micro_batch_size"]}
    return {name: _distribution(name, values) for name, values in kept.items()}


def _distribution(name: str, values: Sequence[KnobValue]) -> BaseDistribution:
    if not KNOBS[name].is_ordered:
        return CategoricalDistribution(list(values))
    numbers = [int(value) for value in values]
    low, high = min(numbers), max(numbers)
    return IntDistribution(low, high, log=low >= 1)


def _share(value: int, distribution: IntDistribution) -> float:
    low, high = distribution.low, distribution.high
    if low == high:
        return 0.0
    if distribution.log:
        return float(np.log(value / low) / np.log(high / low))
    return (value - low) / (high - low)
