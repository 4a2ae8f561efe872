"""One Optuna study: ask, tell, enqueue. Only the driver holds one."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import StudyMismatchError
from autotune.forecast import Forecast
from autotune.objective import LIKELY_CONSTRAINTS, Verdict, direction_of, value_of, worst_value
from autotune.optimizer.frontier.prior import Target
from autotune.optimizer.frontier.sampler import FrontierSampler
from autotune.optimizer.sampler import (
    FRONTIER,
    GENERAL,
    GRID,
    WRITING,
    GridOrder,
    SpaceSampler,
    knob_distributions,
    require_sampler,
)
from autotune.records import Objective, Scores, StudySpec
from search_spaces import TrainingConfig
from trials.measurement import Direction

_ATTEMPT = "attempt"
_CONSTRAINTS = "constraints"


class _Asked(NamedTuple):
    """A trial under way; no config when its driver died before it had all its parameters."""

    trial_id: int
    config: TrainingConfig | None
    constraints: Mapping[str, float]


class _Proposal(NamedTuple):
    """A config that the sampler proposes, and has not been asked yet.

    Attributes:
        number: Of the proposal.
        params: Of the config, by knob that varies.
        config: The config.
        why: What it is expected to bring, in words.
        gain: The most that any open config is expected to add to the front, relative to it.
    """

    number: int
    params: dict[str, Any]
    config: TrainingConfig
    why: str
    gain: float | None


class Gain(NamedTuple):
    """What another trial is expected to bring.

    Attributes:
        proposal: Number of the proposal that it was reckoned for.
        relative: Expected growth of the front's hypervolume, relative to it.
    """

    proposal: int
    relative: float


class OptunaStudy:
    """Asks configs of a space and tells what came of them.

    Attributes:
        forecast: Of each config; None where nothing is predicted.
    """

    def __init__(
        self,
        storage: BaseStorage,
        spec: StudySpec,
        configs: Sequence[TrainingConfig],
        quality_direction: Direction,
        forecast: Forecast | None = None,
    ) -> None:
        """Begin the study of a spec, or go on with it.

        Args:
            storage: From ``open_storage``.
            spec: Of the study.
            configs: Every config that may be asked.
            quality_direction: Of the quality objective.
            forecast: Of each config, for a sampler that uses it.

        Raises:
            SettingsError: No such sampler.
            StudyMismatchError: The stored study has other objectives or directions.
        """
        self._objectives = spec.objectives
        self._quality_direction = quality_direction
        self.forecast = forecast
        self._storage = storage
        self._study = self._open(storage, spec)
        self._study_id = storage.get_study_id_from_name(spec.name)
        self._sampler = self._make_sampler(spec, configs)
        self._is_writing = spec.sampler in WRITING
        self._study.sampler = self._sampler
        self._why = ""
        self._proposal: _Proposal | None = None
        self._is_stale = False
        self._num_proposals = 0
        self._proposal_seconds = 0.0
        self._may_idle_seconds = math.inf
        self._asked: dict[int, _Asked] = {}
        self._next_number = len(self._study.get_trials(deepcopy=False))
        self._num_waiting = len(self._frozen(TrialState.WAITING))
        for trial in self._frozen(TrialState.COMPLETE):
            self._learn(self._sampler.config_of(trial.params), trial.constraints)

    def num_waiting(self) -> int:
        """Return how many enqueued configs have not been asked yet."""
        return self._num_waiting

    @property
    def has_more(self) -> bool:
        """Whether a config is enqueued, or any is left that the sampler may propose."""
        return self._num_waiting > 0 or self._sampler.has_open

    @property
    def why(self) -> str:
        """What the config asked last was expected to bring; empty if nothing says it."""
        return self._why

    def expected_gain(self) -> Gain | None:
        """Return what the best open config is expected to add; None if nothing says it."""
        if self._num_waiting or self._is_writing or not self._sampler.has_open:
            return None
        proposal = self._proposed()
        return None if proposal.gain is None else Gain(proposal.number, proposal.gain)

    def prepare(self, may_idle_seconds: float) -> None:
        """Propose ahead, while trials are under way, if a slot would else idle for too long.

        What is prepared does not know of the trials that end until it is asked.

        Args:
            may_idle_seconds: How long a slot may wait for a proposal.
        """
        self._may_idle_seconds = may_idle_seconds
        is_slow = self._proposal is None and self._proposal_seconds > may_idle_seconds
        if is_slow and not (self._num_waiting or self._is_writing) and self._sampler.has_open:
            self._proposed()

    def enqueue(self, config: TrainingConfig, attempt: int = 1) -> int:
        """Have a config asked before the sampler's own proposals; return its trial's number."""
        values = config.as_dict()
        params = {name: values[name] for name in self._sampler.distributions}
        self._study.enqueue_trial(params, user_attrs={_ATTEMPT: attempt})
        self._num_waiting += 1
        self._next_number = len(self._study.get_trials(deepcopy=False))
        return self._next_number - 1

    def ask(self) -> tuple[int, TrainingConfig, int]:
        """Return the next trial: its number, config and attempt. It is RUNNING from now on."""
        self._why = ""
        number, asked, attempt = self._ask_enqueued() if self._num_waiting else self._ask_sampler()
        assert asked.config is not None
        self._asked[number] = asked
        self._sampler.close_configs([asked.config])
        return number, asked.config, attempt

    def tell(
        self,
        number: int,
        verdict: Verdict,
        seen: Sequence[Scores],
        notes: Mapping[str, str | float],
    ) -> None:
        """Complete a trial with finite values and its constraints.

        Args:
            number: The trial's.
            verdict: Its scores and constraints.
            seen: Scores of the trials completed so far; the worst stand in for missing values.
            notes: What a person sees of the trial in a dashboard.
        """
        # A driver that died may have told the trial and not the store.
        if number not in self._asked and self._stored(number).state.is_finished():
            return
        trial_id, config, known = self._trial(number)
        for name, value in notes.items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        for name, value in sorted(verdict.constraints.items() - known.items()):
            # What set_constraint writes, without reading the whole trial back each time.
            self._storage.set_trial_system_attr(trial_id, f"{_CONSTRAINTS}:{name}", float(value))
        values = [self._told_value(verdict.scores, o, seen) for o in self._objectives]
        self._study.tell(number, values=values)
        assert config is not None
        self._learn(config, verdict.constraints)
        self._asked.pop(number, None)
        self._is_stale = True

    def fail(self, number: int, reason: str) -> None:
        """Fail a trial for a fault that says nothing of its config."""
        trial_id = self._trial(number).trial_id
        self._storage.set_trial_user_attr(trial_id, "outcome", "lost")
        self._storage.set_trial_user_attr(trial_id, "reason", reason)
        self._study.tell(number, state=TrialState.FAIL)
        self._asked.pop(number, None)

    def close_configs(self, configs: Sequence[TrainingConfig]) -> None:
        """Keep the sampler from proposing these configs."""
        self._sampler.close_configs(configs)
        if self._proposal is not None and self._proposal.config in configs:
            self._proposal = None

    def open_configs(self) -> list[TrainingConfig]:
        """Return the configs that the sampler may still propose."""
        return self._sampler.open_configs()

    def running(self) -> dict[int, tuple[TrainingConfig, int]]:
        """Return config and attempt of the trials that were asked and not told, by number."""
        return {
            trial.number: (
                self._sampler.config_of(trial.params),
                int(trial.user_attrs.get(_ATTEMPT, 1)),
            )
            for trial in self._frozen(TrialState.RUNNING)
            if self._is_whole(trial)
        }

    def fail_half_asked(self, reason: str) -> None:
        """Fail trials whose asking was cut short before they had all their parameters."""
        for trial in self._frozen(TrialState.RUNNING):
            if not self._is_whole(trial):
                self.fail(trial.number, reason)

    def _trial(self, number: int) -> _Asked:
        if number not in self._asked:
            frozen = self._stored(number)
            config = self._sampler.config_of(frozen.params) if self._is_whole(frozen) else None
            self._asked[number] = _Asked(frozen._trial_id, config, frozen.constraints)
        return self._asked[number]

    def _ask_enqueued(self) -> tuple[int, _Asked, int]:
        asked = self._ask_in_steps()
        self._num_waiting -= 1
        return asked

    def _ask_in_steps(self) -> tuple[int, _Asked, int]:
        trial = self._study.ask(fixed_distributions=self._sampler.distributions)
        config = self._sampler.config_of(trial.params)
        attempt = int(trial.user_attrs.get(_ATTEMPT, 1))
        return trial.number, _Asked(trial._trial_id, config, {}), attempt

    def _ask_sampler(self) -> tuple[int, _Asked, int]:
        """Ask as ``Study.ask`` does, but write the trial with its parameters in one go.

        One transaction instead of one for each parameter and constraint, and no half asked trial.
        """
        if self._is_writing:
            return self._ask_in_steps()
        proposal, self._proposal = self._proposed(), None
        self._why = proposal.why
        whole = create_trial(
            state=TrialState.RUNNING,
            params=proposal.params,
            distributions=self._sampler.distributions,
            constraints=LIKELY_CONSTRAINTS,
        )
        trial_id = self._storage.create_new_trial(self._study_id, whole)
        asked = _Asked(trial_id, proposal.config, LIKELY_CONSTRAINTS)
        return self._number_of(trial_id), asked, 1

    def _proposed(self) -> "_Proposal":
        """Return the next proposal; one that is stale is made anew unless that takes long."""
        known = self._proposal
        is_slow = self._proposal_seconds > self._may_idle_seconds
        if known is not None and (is_slow or not self._is_stale):
            return known
        began = time.monotonic()
        blank = create_trial(state=TrialState.RUNNING)
        self._sampler.before_trial(self._study, blank)
        params = self._sampler.sample_relative(self._study, blank, self._sampler.distributions)
        self._num_proposals += 1
        self._is_stale = False
        self._proposal_seconds = time.monotonic() - began
        self._proposal = _Proposal(
            number=self._num_proposals,
            params=params,
            config=self._sampler.config_of(params),
            why=self._sampler.why,
            gain=self._sampler.best_gain,
        )
        return self._proposal

    def _number_of(self, trial_id: int) -> int:
        """Return a new trial's number: the next one, unless someone else writes here too.

        Optuna keeps the ids of numbers in memory; the numbers of ids it reads a whole trial for.
        """
        number, self._next_number = self._next_number, self._next_number + 1
        with suppress(KeyError):
            if (
                self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
                == trial_id
            ):
                return number
        number = self._storage.get_trial(trial_id).number
        self._next_number = number + 1
        return number

    def _is_whole(self, trial: FrozenTrial) -> bool:
        """Tell whether a trial has all its parameters; its driver may have died asking."""
        return trial.params.keys() >= self._sampler.distributions.keys()

    def _stored(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _frozen(self, state: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(state,))

    def _learn(self, config: TrainingConfig, constraints: Mapping[str, float]) -> None:
        # What the host ran out of, or what never trained, says nothing of the device's memory.
        if constraints.get("valid") == constraints.get("host_memory") == 0.0:
            self._sampler.learn(config, constraints["memory"])

    def _told_value(self, scores: Scores, objective: Objective, seen: Sequence[Scores]) -> float:
        value = value_of(scores, objective)
        if value is not None:
            return value
        return worst_value(seen, objective, self._quality_direction)

    def _open(self, storage: BaseStorage, spec: StudySpec) -> optuna.Study:
        names = [str(objective) for objective in spec.objectives]
        directions = [str(direction_of(o, self._quality_direction)) for o in spec.objectives]
        study = optuna.create_study(
            storage=storage,
            study_name=spec.name,
            directions=[StudyDirection[name.upper()] for name in directions],
            load_if_exists=True,
        )
        stored = [direction.name.lower() for direction in study.directions]
        begun = study.metric_names or names  # a driver that died may not have named them
        if (begun, stored) != (names, directions):
            raise StudyMismatchError(
                f"study {spec.name!r} was begun with objectives {_listed(begun, stored)}, "
                f"not {_listed(names, directions)}; use those it was begun with"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names(names)
        return study

    def _make_sampler(self, spec: StudySpec, configs: Sequence[TrainingConfig]) -> SpaceSampler:
        require_sampler(spec.sampler)
        # A resumed study must not draw again what it drew before.
        seed = (spec.seed + 1_000_003 * len(self._study.get_trials(deepcopy=False))) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if spec.sampler == FRONTIER:
                return SpaceSampler(self._frontier(spec, configs, seed), configs)
            if spec.sampler == GRID:
                return SpaceSampler(GridOrder(configs), configs)
            return SpaceSampler(GENERAL[spec.sampler](seed), configs)

    def _frontier(
        self, spec: StudySpec, configs: Sequence[TrainingConfig], seed: int
    ) -> FrontierSampler:
        directions = [direction_of(o, self._quality_direction) for o in spec.objectives]
        forecast = self.forecast
        costs = None if forecast is None else forecast.costs
        targets = [
            Target(
                name=str(objective),
                is_minimized=direction == Direction.MINIMIZE,
                predicted=costs if objective == Objective.COST else None,
            )
            for objective, direction in zip(spec.objectives, directions, strict=True)
        ]
        return FrontierSampler(
            configs,
            knob_distributions(configs),
            objectives=targets,
            priors=None if forecast is None else forecast.priors,
            memory_budget_bytes=spec.memory_budget_bytes,
            numerics=[config.numerics_class(spec.space.num_devices) for config in configs],
            seed=seed,
        )


def _listed(objectives: Sequence[str], directions: Sequence[str]) -> str:
    return ", ".join(f"{o} ({d})" for o, d in zip(objectives, directions, strict=False))
