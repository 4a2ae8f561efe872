"""One Optuna study: ask, tell, enqueue. Only the driver holds one."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState

from autotune.errors import SettingsError, StudyMismatchError
from autotune.objective import Verdict, direction_of, value_of, worst_value
from autotune.optimizer.sampler import SAMPLERS, SpaceSampler
from autotune.records import Objective, Scores, StudySpec
from autotune.store.engine import engine_options, normalise_url, open_engine, tune_sqlite
from autotune.store.faults import database_faults
from autotune.store.migrate import making_tables
from search_spaces import TrainingConfig, did_you_mean
from trials.measurement import Direction

_ATTEMPT = "attempt"


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


class OptunaStudy:
    """Asks configs of a space and tells what came of them."""

    def __init__(
        self,
        storage: BaseStorage,
        spec: StudySpec,
        configs: Sequence[TrainingConfig],
        quality_direction: Direction,
    ) -> None:
        """Begin the study of a spec, or go on with it.

        Args:
            storage: From ``open_storage``.
            spec: Of the study.
            configs: Every config that may be asked.
            quality_direction: Of the quality objective.

        Raises:
            SettingsError: No such sampler.
            StudyMismatchError: The stored study has other objectives or directions.
        """
        self._objectives = spec.objectives
        self._quality_direction = quality_direction
        self._study = self._open(storage, spec)
        self._sampler = self._make_sampler(spec, configs)
        self._study.sampler = self._sampler
        self._asked: dict[int, Trial] = {}

    def enqueue(self, config: TrainingConfig, attempt: int = 1) -> None:
        """Have a config asked before the sampler's own proposals."""
        values = config.as_dict()
        params = {name: values[name] for name in self._sampler.distributions}
        self._study.enqueue_trial(params, user_attrs={_ATTEMPT: attempt})

    def ask(self) -> tuple[int, TrainingConfig, int]:
        """Return the next trial: its number, config and attempt. It is RUNNING from now on."""
        trial = self._study.ask(fixed_distributions=self._sampler.distributions)
        config = self._sampler.config_of(trial.params)
        self._asked[trial.number] = trial
        self._sampler.close_configs([config])
        return trial.number, config, int(trial.user_attrs.get(_ATTEMPT, 1))

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
        if self._is_finished(number):  # a driver that died told it, and not the store
            return
        trial = self._trial(number)
        for name, value in notes.items():
            trial.set_user_attr(name, value)
        known = trial.constraints
        for name in sorted(verdict.constraints):
            if name not in known:  # a driver that died may have set it already
                trial.set_constraint(name, verdict.constraints[name])
        values = [self._told_value(verdict.scores, o, seen) for o in self._objectives]
        self._study.tell(number, values=values)
        self._asked.pop(number, None)

    def fail(self, number: int, reason: str) -> None:
        """Fail a trial for a fault that says nothing of its config."""
        self._trial(number).set_user_attr("outcome", "lost")
        self._trial(number).set_user_attr("reason", reason)
        self._study.tell(number, state=TrialState.FAIL)
        self._asked.pop(number, None)

    def close_configs(self, configs: Sequence[TrainingConfig]) -> None:
        """Keep the sampler from proposing these configs."""
        self._sampler.close_configs(configs)

    def open_configs(self) -> list[TrainingConfig]:
        """Return the configs that the sampler may still propose."""
        return self._sampler.open_configs()

    def num_waiting(self) -> int:
        """Return how many enqueued configs have not been asked yet."""
        return len(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def running(self) -> dict[int, tuple[TrainingConfig, int]]:
        """Return config and attempt of the trials that were asked and not told, by number."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {
            trial.number: (
                self._sampler.config_of(trial.params),
                int(trial.user_attrs.get(_ATTEMPT, 1)),
            )
            for trial in trials
            if trial.params.keys() >= self._sampler.distributions.keys()
        }

    def fail_half_asked(self, reason: str) -> None:
        """Fail trials whose asking was cut short before they had all their parameters."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not trial.params.keys() >= self._sampler.distributions.keys():
                self.fail(trial.number, reason)

    def _trial(self, number: int) -> Trial:
        if number not in self._asked:
            frozen = self._study.get_trials(deepcopy=False)[number]
            self._asked[number] = Trial(self._study, frozen._trial_id)
        return self._asked[number]

    def _is_finished(self, number: int) -> bool:
        return self._study.get_trials(deepcopy=False)[number].state.is_finished()

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
        if spec.sampler not in SAMPLERS:
            hint = did_you_mean(spec.sampler, SAMPLERS)
            raise SettingsError(f"no sampler {spec.sampler!r}{hint}")
        # A resumed study must not draw again what it drew before.
        seed = spec.seed + 1_000_003 * len(self._study.get_trials(deepcopy=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return SpaceSampler(SAMPLERS[spec.sampler](seed % 2**32), configs)


def _listed(objectives: Sequence[str], directions: Sequence[str]) -> str:
    return ", ".join(f"{o} ({d})" for o, d in zip(objectives, directions, strict=False))
