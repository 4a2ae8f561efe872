"""The sampler that starts from physics: over an enumerated space, one config at a time."""

import logging
from collections.abc import Collection, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.optimizer.frontier.beliefs import Belief, Expectation, Guess, Usual
from autotune.optimizer.frontier.choice import Choice, Outlook, best_choice
from autotune.optimizer.frontier.prior import ConfigPrior, Target
from autotune.records import Source
from search_spaces import TrainingConfig

logger = logging.getLogger(__name__)

MEMORY = "memory"
UNKNOWN_VIOLATION = 1.0
"""Told of a trial that ran out of memory and could not say at how much."""
_PEAK = Usual(bias=0.12, error=0.08, noise=0.015)
_TIME = Usual(bias=0.4, error=0.6, noise=0.1)
_QUALITY = Usual(bias=1.0, error=0.5, noise=0.1)
_LEAST_OVERRUN = 0.02
_DRAWS = 64
_LEAST = 1e-300
_LOGGED = ("throughput", "cost", "peak_memory")
Array = NDArray[np.float64]


class _Seen(NamedTuple):
    """What a study has: completed rows with losses, rows with a peak, broken and running rows.

    And how many of those that did not fit really ran.
    """

    completed: dict[int, tuple[float, ...]]
    peaks: dict[int, float]
    overran: frozenset[int]
    broken: frozenset[int]
    running: frozenset[int]
    num_overruns: int


class FrontierSampler(BaseSampler):
    """Asks the config that is expected to add most hypervolume for each second of trial.

    Attributes:
        fallbacks: How often multivariate TPE stood in because the model failed.
        last: What the latest proposal was expected to bring; None where TPE stood in.
    """

    def __init__(  # noqa: PLR0913 - a study in full, without a study
        self,
        configs: Sequence[TrainingConfig],
        distributions: dict[str, BaseDistribution],
        *,
        objectives: Sequence[Target],
        priors: Sequence[ConfigPrior] | None = None,
        memory_budget_bytes: int | None = None,
        numerics: Sequence[Hashable] | None = None,
        seed: int = 0,
    ) -> None:
        """Begin with predictions, if there are any.

        Args:
            configs: Every member of the space.
            distributions: Optuna's, of each knob that varies.
            objectives: In the order of the study's directions.
            priors: Of each config; None without any.
            memory_budget_bytes: Of each trial; None where nothing limits it.
            numerics: Class of each config that decides its quality; by default its own.
            seed: Of what is drawn.
        """
        self._objectives, self._configs = list(objectives), list(configs)
        self._distributions = dict(distributions)
        self._budget = memory_budget_bytes
        self._random = np.random.default_rng(seed)
        self._tpe = TPESampler(multivariate=True, seed=seed)
        self._closed = np.zeros(len(configs), dtype=np.bool_)
        points = [config.as_dict() for config in configs]
        self._points = [{name: p[name] for name in distributions} for p in points]
        self._rows = {tuple(p.values()): row for row, p in enumerate(self._points)}
        features = np.array([_place(p, distributions) for p in self._points], dtype=float)
        classes = numerics or [config.numerics_class() for config in configs]
        peaks = _column(priors, "peak_device_bytes")
        self._seconds = _column(priors, "trial_seconds")
        self._peak = Belief(features, _guess(peaks, priors, "peak_errors"), _PEAK)
        self._beliefs = [self._belief(t, priors, features, classes) for t in objectives]
        self.fallbacks = 0
        self.last: Choice | None = None

    def close_configs(self, configs: Collection[TrainingConfig]) -> None:
        """Never propose these configs again."""
        for config in configs:
            values = config.as_dict()
            self._closed[self._rows[tuple(values[name] for name in self._distributions)]] = True

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return every knob that varies; see BaseSampler."""
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the most promising open config, or what TPE proposes; see BaseSampler.

        Of another space than its own it knows nothing, and leaves it to TPE.
        """
        if search_space != self._distributions:
            return self._by_tpe(study, trial, search_space)
        try:
            self.last = self._choose(self._seen(study, trial))
        except Exception as error:
            self.fallbacks += 1
            self.last = None
            logger.warning("multivariate TPE stands in for the frontier model: %r", error)
            return self._by_tpe(study, trial, search_space)
        return dict(self._points[self.last.row])

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Leave knobs beside the space to TPE; see BaseSampler."""
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)

    def _by_tpe(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return TPE's proposal, whole: at first it draws each parameter by itself."""
        proposal = self._tpe.sample_relative(study, trial, search_space)
        for name, distribution in search_space.items():
            if name not in proposal:
                proposal[name] = self._tpe.sample_independent(study, trial, name, distribution)
        return proposal

    def reseed_rng(self) -> None:
        """See BaseSampler."""
        self._random = np.random.default_rng()
        self._tpe.reseed_rng()

    def _belief(
        self,
        target: Target,
        priors: Sequence[ConfigPrior] | None,
        features: Array,
        classes: Sequence[Hashable],
    ) -> Belief | None:
        """Return what is believed of an objective; None for the peak, which has its own."""
        if target.name == "peak_memory":
            return None
        if target.name == "quality":
            return Belief(_by_class(features, classes), None, _QUALITY)
        predicted = None
        if target.predicted is not None:
            predicted = np.log(np.array(target.predicted, dtype=float))
        elif (seconds := _column(priors, "step_seconds")) is not None:
            batch = [
                config.micro_batch_size * config.accumulation_steps for config in self._configs
            ]
            per_sample = seconds - np.log(np.array(batch, dtype=float))
            predicted = per_sample if target.is_minimized else -per_sample
        if predicted is not None and not target.is_minimized:
            predicted = -predicted
        return Belief(features, _guess(predicted, priors, "step_errors"), _TIME)

    def _choose(self, seen: _Seen) -> Choice:
        is_open = ~self._closed
        is_open[list(seen.completed.keys() | seen.overran | seen.broken | seen.running)] = False
        if not is_open.any():
            is_open[:] = True
        peak = self._expected_peak(seen)
        expected = [
            peak if belief is None else self._expected(belief, place, seen)
            for place, belief in enumerate(self._beliefs)
        ]
        fits = np.ones(len(self._configs))
        if self._budget is not None:
            fits = peak.below(float(np.log(self._budget)))
        normals = self._random.standard_normal((len(expected), _DRAWS, len(self._configs)))
        drawn = [e.draws(normals[place]) for place, e in enumerate(expected)]
        outlook = Outlook(
            draws=self._in_units(np.stack(drawn, axis=2)),
            means=self._in_units(np.stack([e.mean for e in expected], axis=1)),
            fits=fits,
            seconds=None if self._seconds is None else np.exp(self._seconds),
            is_open=is_open,
            overruns=seen.num_overruns,
        )
        front = np.array(list(seen.completed.values()), dtype=float).reshape(-1, len(expected))
        return best_choice(outlook, self._in_units(front), sorted(seen.running))

    def _in_units(self, losses: Array) -> Array:
        """Return losses in the objectives' own units, less being better: (..., objectives).

        A front is judged in these; only what is believed of it is about ratios.
        """
        columns = [
            _from_logarithm(target, losses[..., place])
            for place, target in enumerate(self._objectives)
        ]
        return np.stack(columns, axis=-1)

    def _expected(self, belief: Belief, place: int, seen: _Seen) -> Expectation:
        losses = [seen.completed[row][place] for row in seen.completed]
        return belief.expect(list(seen.completed), losses)

    def _expected_peak(self, seen: _Seen) -> Expectation:
        """Expect peaks; what overran took at least what it failed at, and maybe more."""
        kept = {row: peak for row, peak in seen.peaks.items() if row not in seen.overran}
        expected = self._peak.expect(list(kept), list(kept.values()))
        if not seen.overran:
            return expected
        mean = expected.mean
        taken = {row: max(float(mean[row]), seen.peaks[row]) for row in seen.overran} | kept
        return self._peak.expect(list(taken), list(taken.values()))

    def _seen(self, study: Study, trial: FrozenTrial) -> _Seen:
        completed: dict[int, tuple[float, ...]] = {}
        peaks: dict[int, float] = {}
        overran, broken, running = set(), set(), set()
        num_overruns = 0
        for other in study.get_trials(deepcopy=False):
            row = self._row(other)
            if row is None or other.number == trial.number:
                continue
            if other.state == TrialState.RUNNING:
                running.add(row)
            if other.state != TrialState.COMPLETE:
                continue
            limits = other.constraints
            memory = limits.get(MEMORY)
            if all(value <= 0 for name, value in limits.items() if name != MEMORY):
                if memory is not None and self._budget is not None and memory > -1:
                    peaks[row] = self._peak_of(memory)
                if memory is not None and memory > 0:
                    overran.add(row)
                    num_overruns += other.user_attrs.get("source") != Source.PREDICTED
                else:
                    told = zip(self._objectives, other.values, strict=True)
                    completed[row] = tuple(_loss(target, value) for target, value in told)
            else:
                broken.add(row)
        self._read_peaks(completed, peaks)
        return _Seen(
            completed,
            peaks,
            frozenset(overran),
            frozenset(broken),
            frozenset(running),
            num_overruns,
        )

    def _read_peaks(
        self, completed: dict[int, tuple[float, ...]], peaks: dict[int, float]
    ) -> None:
        """Take peaks from the objective where there is one; it is exact, without a budget too."""
        for place, target in enumerate(self._objectives):
            if target.name == "peak_memory":
                for row, losses in completed.items():
                    peaks[row] = losses[place]

    def _peak_of(self, violation: float) -> float:
        """Return the logarithm of a peak; what overran took more than where it failed."""
        assert self._budget is not None
        share = 1 + violation
        if violation == UNKNOWN_VIOLATION or 0 < violation < _LEAST_OVERRUN:
            share = 1 + _LEAST_OVERRUN
        return float(np.log(self._budget * share))

    def _row(self, trial: FrozenTrial) -> int | None:
        if not trial.params.keys() >= self._distributions.keys():
            return None
        return self._rows.get(tuple(trial.params[name] for name in self._distributions))


def _loss(target: Target, value: float) -> float:
    """Return an objective with less being better: by its logarithm, but for quality.

    Ratios are what predictions and noise are about, and keep one lucky guess from being worth
    more than the whole front.
    """
    if target.name in _LOGGED:
        value = float(np.log(max(value, _LEAST)))
    return value if target.is_minimized else -value


def _from_logarithm(target: Target, losses: Array) -> Array:
    if target.name not in _LOGGED:
        return losses
    return np.asarray(np.exp(losses) if target.is_minimized else -np.exp(-losses))


def _column(priors: Sequence[ConfigPrior] | None, name: str) -> Array | None:
    """Return logarithms of one prediction of every config; a missing one is the median."""
    if priors is None:
        return None
    values = [getattr(prior, name) for prior in priors]
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle = float(np.median(known))
    return np.asarray(np.log([middle if value is None else float(value) for value in values]))


def _guess(mean: Array | None, priors: Sequence[ConfigPrior] | None, errors: str) -> Guess | None:
    """Return predictions with the errors that they share."""
    if mean is None:
        return None
    rows = [getattr(prior, errors) for prior in priors] if priors else [()] * len(mean)
    return Guess(mean, np.array(rows, dtype=float))


def _by_class(features: Array, classes: Sequence[Hashable]) -> Array:
    """Return the mean features of each config's class: alike within, apart between."""
    numbers: dict[Hashable, int] = {}
    member = np.array([numbers.setdefault(name, len(numbers)) for name in classes])
    means = np.array([features[member == number].mean(axis=0) for number in range(len(numbers))])
    return np.asarray(means[member])


def _place(point: dict[str, Any], distributions: dict[str, BaseDistribution]) -> list[float]:
    place: list[float] = []
    for name, distribution in distributions.items():
        if isinstance(distribution, IntDistribution):
            place.extend(_number_place(point[name], distribution))
        elif isinstance(distribution, CategoricalDistribution):
            choices = distribution.choices
            names = choices[1:] if len(choices) == 2 else choices
            place.extend(float(point[name] == choice) for choice in names)
    return place


def _number_place(value: int, distribution: IntDistribution) -> list[float]:
    """Return the share of a number in its range, by logarithm; and of 0, that it is off."""
    low, high = distribution.low, distribution.high
    if low == high:
        return [0.0]
    if low >= 1:
        return [float(np.log(value / low) / np.log(high / low))]
    share = float(np.log1p(value - low) / np.log1p(high - low))
    return [share, float(value > 0)] if high > 1 else [share]
