"""What a person asks for: flags over environment over file over defaults, checked once.

Every setting is the flag of the same name, the environment variable ``AUTOTUNE_<NAME>``, and
the key of the same name in the file that ``AUTOTUNE_SETTINGS`` or ``--settings`` names.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self

from platformdirs import user_data_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from autotune.errors import PriceBookError, SettingsError
from autotune.prices.book import PriceBook
from autotune.rates import Rates
from autotune.records import Budget, Objective
from search_spaces import did_you_mean
from trials.environment import Environment

PREFIX = "AUTOTUNE_"
SETTINGS_FILE_VARIABLE = "AUTOTUNE_SETTINGS"
DEFAULT_TRIALS = 24
MIN_BYTES = 2**20
"""Of a size; less is a forgotten unit."""
MAX_BYTES = 2**62
"""Of a size; a database keeps no integer of more than 63 bits."""
_UNITS = {
    "b": 1,
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: object) -> int:
    """Read a size as people write it: ``600MiB``, ``1.5 GiB``, ``80GB``.

    Raises:
        ValueError: No size, one below 1 MiB or too large to store, no unit or an unknown one.
    """
    found = _SIZE.fullmatch(str(text))
    if found is None or found[2].lower() not in {"", *_UNITS}:
        raise ValueError(f"{text!r} is no size; write it like 600MiB or 1.5GiB")
    number, unit = Decimal(found[1]), found[2].lower()
    if not unit and number != 0:
        raise ValueError("give a unit, like 8GiB")
    size = number * _UNITS[unit] if unit else number
    if not MIN_BYTES <= size <= MAX_BYTES:
        raise ValueError(f"{text!r} is no size between 1 MiB and 4 EiB")
    return int(size)


def _listed(value: object) -> object:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _distinct(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    if len(set(objectives)) < len(objectives):
        raise ValueError("an objective is named twice; name each once")
    return objectives


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("is no day; write it like 2026-06-30") from None


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Objectives = Annotated[
    tuple[Objective, ...],
    BeforeValidator(_listed),
    Field(min_length=1),
    AfterValidator(_distinct),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Day = Annotated[str, AfterValidator(_day)]


def default_store_path() -> Path:
    """Return the file of the store in the user's data folder; it may not be there yet."""
    return user_data_path("autotune") / "studies.db"


def default_store() -> str:
    """Return the address of that store."""
    return f"sqlite:///{default_store_path()}"


class Settings(BaseModel):
    """Settings of one command. Frozen; unknown names are refused.

    Attributes:
        workload: What to train.
        space: Preset or TOML file.
        study: Name; made from the workload when left out.
        store: Address of the database.
        global_batch: Samples per optimizer step; the workload's own when left out.
        num_devices: Data-parallel devices of the real job.
        trial_devices: Devices that one trial really trains on together.
        memory_budget: Device memory of a trial, in bytes.
        trials: Most trials that run.
        seconds: Most wall time.
        device_seconds: Most time of trial processes together.
        usd: Most money, as device time at the device rate.
        planned_hours: Training that the config is for; a study ends once another trial is
            expected to save less of it than it takes. 0 never ends one for that.
        objectives: In order; the first decides the recommendation.
        sampler: Who proposes configs.
        slots: Trials at once.
        local: Run trials without Ray.
        ray_address: Of a running cluster.
        nvme_path: Folder on a fast local disk that trials may offload optimizer state to.
        device: ``cpu`` or ``cuda``; CUDA where there is a GPU, when left out.
        baseline: File with today's config, as ``autotune.exports.read_config`` reads it.
        seed: Of everything random.
        deadline: Seconds that one trial may take.
        confirm: Run the recommended config a second time, in a fresh process.
        quality_repeats: Seeds over which the noise of quality is measured.
        prices: Price book; the built-in one when left out.
        device_usd_per_hour: Rate of a device; left out, the price book's.
        device_gib_usd_per_hour: Rate of device memory.
        host_gib_usd_per_hour: Rate of host memory.
        nvme_gib_usd_per_hour: Rate of NVMe.
        rates_dated: Day of the rates, and of a price book that does not say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str = "byte-gpt"
    space: str = "default"
    study: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    store: str = Field(default_factory=default_store)
    global_batch: Count | None = None
    num_devices: Count = 1
    trial_devices: Count = 1
    memory_budget: Bytes | None = None
    trials: Count | None = None
    seconds: Positive | None = None
    device_seconds: Positive | None = None
    usd: Positive | None = None
    planned_hours: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 24.0
    objectives: Objectives = tuple(Objective)
    sampler: str = "frontier"
    slots: Count | None = None
    local: bool = False
    ray_address: str | None = None
    nvme_path: Path | None = None
    device: Annotated[str, Field(pattern="^(cpu|cuda)$")] | None = None
    baseline: Path | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    deadline: Positive = 120.0
    confirm: bool = True
    quality_repeats: Count = 3
    prices: Path | None = None
    device_usd_per_hour: Price | None = None
    device_gib_usd_per_hour: Price | None = None
    host_gib_usd_per_hour: Price | None = None
    nvme_gib_usd_per_hour: Price | None = None
    rates_dated: Day | None = None

    @classmethod
    def load(cls, flags: Mapping[str, Any], settings_file: Path | None = None) -> Self:
        """Read settings from all their places; a flag that is None was not given.

        Raises:
            SettingsError: An unknown name or a bad value; the message says which and where.
        """
        named = os.environ.get(SETTINGS_FILE_VARIABLE)
        path = settings_file or (Path(named) if named else None)
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        places = (
            (f"file {path}", _from_file(path)),
            ("environment", _from_environment()),
            ("flags", {name: value for name, value in flags.items() if value is not None}),
        )
        for place, found in places:
            values.update(found)
            sources.update(dict.fromkeys(found, place))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError(_explained(error, sources)) from None

    @property
    def job_devices(self) -> int:
        """Devices of the real job: those of one trial at least."""
        return max(self.num_devices, self.trial_devices)

    def budget(self) -> Budget:
        """Return when to stop; the default number of trials when nothing else is limited."""
        limits = (self.trials, self.seconds, self.device_seconds, self.usd)
        has_limit = any(limit is not None for limit in limits)
        return Budget(
            trials=self.trials if has_limit else DEFAULT_TRIALS,
            seconds=self.seconds,
            device_seconds=self.device_seconds,
            usd=self.usd,
            planned_seconds=self.planned_seconds,
        )

    @property
    def planned_seconds(self) -> float | None:
        """Training that the config is for; None where no end is put to a study for it."""
        return 3600 * self.planned_hours or None

    def price_book(self) -> PriceBook:
        """Return the prices to count with.

        Raises:
            PriceBookError: The file of them cannot be used; the message says why.
        """
        from autotune.prices.reading import builtin_book, read_book  # few commands count money

        if self.prices is None:
            return builtin_book()
        day = None if self.rates_dated is None else date.fromisoformat(self.rates_dated)
        return read_book(self.prices, day)

    def rates(self, environment: Environment) -> Rates:
        """Return the prices of the cost objective: the given ones, or else the book's.

        Raises:
            PriceBookError: The book has none for the device.
        """
        given = {
            "device_usd_per_hour": self.device_usd_per_hour,
            "device_gib_usd_per_hour": self.device_gib_usd_per_hour,
            "host_gib_usd_per_hour": self.host_gib_usd_per_hour,
            "nvme_gib_usd_per_hour": self.nvme_gib_usd_per_hour,
        }
        changed: dict[str, Any] = {n: rate for n, rate in given.items() if rate is not None}
        book = self.price_book()
        rates = book.rates(environment, self.trial_devices)
        if rates is None:
            raise PriceBookError(
                f"price book {book.name!r} has neither rates of parts nor a machine for "
                f"{environment.device_name}; add [[components]] to it, or leave --prices out"
            )
        if not changed:
            return rates
        dated = self.rates_dated or date.today().isoformat()
        return replace(rates, **changed, dated=dated, book=f"{rates.book}, changed")


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"settings file {str(path)!r} cannot be read: {error}") from error


def _from_environment() -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        if name.startswith(PREFIX) and name != SETTINGS_FILE_VARIABLE
    }


def _explained(error: ValidationError, sources: Mapping[str, str]) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0])
    place = sources.get(name, "settings")
    if first["type"] == "extra_forbidden":
        return (
            f"unknown setting {name!r} in the {place}{did_you_mean(name, Settings.model_fields)}"
        )
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if name == "store" else f"={first['input']!r}"
    return f"{name}{shown} in the {place}: {message[0].lower()}{message[1:]}"
