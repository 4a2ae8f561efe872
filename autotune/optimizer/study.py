"""One Optuna study: ask, tell, enqueue. Only the driver holds one."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import StudyMismatchError
from autotune.objective import LIKELY_CONSTRAINTS, Verdict, direction_of, value_of, worst_value
from autotune.optimizer.frontier.prior import ConfigPrior, Target
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
from autotune.store.engine import engine_options, normalise_url, open_engine, tune_sqlite
from autotune.store.faults import database_faults
from autotune.store.migrate import making_tables
from search_spaces import TrainingConfig
from trials.measurement import Direction

_ATTEMPT = "attempt"
_CONSTRAINTS = "constraints"


@contextmanager
def opened_storage(store_url: str) -> Iterator[BaseStorage]:
    """Yield Optuna's view of a store's database, and let go of the database afterwards.

    Raises:
        StoreError: A row breaks a rule of the schema.
        StoreUnreachableError: Anything else that the database reports, through Optuna or not.
    """
    with database_faults(normalise_url(store_url)):
        try:
            storage = open_storage(store_url)
            try:
                yield get_storage(storage)
            finally:
                storage.engine.dispose()
        except StorageInternalError as error:
            raise (error.__cause__ or error) from None


def open_storage(store_url: str) -> RDBStorage:
    """Return Optuna's storage in a store's database, making its tables if they are not there."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = normalise_url(store_url)
    engine = open_engine(url)
    with making_tables(engine):
        storage = RDBStorage(
            url.render_as_string(hide_password=False), engine_kwargs=engine_options(url)
        )
    engine.dispose()
    tune_sqlite(storage.engine)
    return storage


def delete_optuna_study(storage: BaseStorage, name: str) -> None:
    """Remove a study and its trials from Optuna's tables. Quiet when there is none."""
    known = {study.study_name: study._study_id for study in storage.get_all_studies()}
    if name in known:
        storage.delete_study(known[name])


class _Asked(NamedTuple):
    """A trial under way; no config when its driver died before it had all its parameters."""

    trial_id: int
    config: TrainingConfig | None
    constraints: Mapping[str, float]


class OptunaStudy:
    """Asks configs of a space and tells what came of them."""

    def __init__(
        self,
        storage: BaseStorage,
        spec: StudySpec,
        configs: Sequence[TrainingConfig],
        quality_direction: Direction,
        foreseen: tuple[Sequence[ConfigPrior], Sequence[float]] | None = None,
    ) -> None:
        """Begin the study of a spec, or go on with it.

        Args:
            storage: From ``open_storage``.
            spec: Of the study.
            configs: Every config that may be asked.
            quality_direction: Of the quality objective.
            foreseen: Prediction and cost of each config, for a sampler that uses them.

        Raises:
            SettingsError: No such sampler.
            StudyMismatchError: The stored study has other objectives or directions.
        """
        self._objectives = spec.objectives
        self._quality_direction = quality_direction
        self._foreseen = foreseen
        self._storage = storage
        self._study = self._open(storage, spec)
        self._study_id = storage.get_study_id_from_name(spec.name)
        self._sampler = self._make_sampler(spec, configs)
        self._is_writing = spec.sampler in WRITING
        self._study.sampler = self._sampler
        self._is_enqueued_last = False
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
        return "" if self._is_enqueued_last else self._sampler.why

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
        self._is_enqueued_last = self._num_waiting > 0
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
        distributions = self._sampler.distributions
        blank = create_trial(state=TrialState.RUNNING)
        self._sampler.before_trial(self._study, blank)
        params = self._sampler.sample_relative(self._study, blank, distributions)
        whole = create_trial(
            state=TrialState.RUNNING,
            params=params,
            distributions=distributions,
            constraints=LIKELY_CONSTRAINTS,
        )
        trial_id = self._storage.create_new_trial(self._study_id, whole)
        config = self._sampler.config_of(params)
        return self._number_of(trial_id), _Asked(trial_id, config, LIKELY_CONSTRAINTS), 1

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
        priors, costs = self._foreseen or (None, None)
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
            priors=priors,
            memory_budget_bytes=spec.memory_budget_bytes,
            numerics=[config.numerics_class(spec.space.num_devices) for config in configs],
            seed=seed,
        )


def _listed(objectives: Sequence[str], directions: Sequence[str]) -> str:
    return ", ".join(f"{o} ({d})" for o, d in zip(objectives, directions, strict=False))
