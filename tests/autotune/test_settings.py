import os
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import PriceBookError, SettingsError
from autotune.records import Budget, Objective
from autotune.settings import DEFAULT_TRIALS, Settings, parse_bytes
from tests.factories import make_environment

CPU = make_environment(num_threads=2)
DAY = 86_400.0


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AUTOTUNE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path):
    """Write a settings file and return its path."""

    def write(text):
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


def refusal(flags=None, settings_file=None):
    with pytest.raises(SettingsError) as caught:
        Settings.load(flags or {}, settings_file)
    return str(caught.value)


def test_without_anything_said_the_defaults_hold():
    found = Settings.load({})
    assert (found.workload, found.space, found.sampler) == ("byte-gpt", "default", "frontier")
    assert (found.seed, found.trials, found.objectives) == (0, None, tuple(Objective))
    assert found.store.startswith("sqlite:///") and found.store.endswith("studies.db")


def test_the_file_goes_over_the_default(file):
    assert Settings.load({}, file("seed = 1")).seed == 1


def test_the_environment_goes_over_the_file(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SEED", "2")
    assert Settings.load({}, file("seed = 1")).seed == 2


def test_the_flag_goes_over_the_environment(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SEED", "2")
    assert Settings.load({"seed": 3}, file("seed = 1")).seed == 3


def test_a_flag_that_was_not_given_hides_nothing(monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SEED", "2")
    assert Settings.load({"seed": None}).seed == 2


def test_each_place_sets_what_the_others_leave(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SLOTS", "2")
    found = Settings.load({"trials": 3}, file('sampler = "random"'))
    assert (found.trials, found.slots, found.sampler) == (3, 2, "random")


def test_the_environment_may_name_the_file(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SETTINGS", str(file("seed = 1")))
    assert Settings.load({}).seed == 1


def test_a_file_that_is_given_goes_over_the_one_that_the_environment_names(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SETTINGS", "/nowhere.toml")
    assert Settings.load({}, file("seed = 1")).seed == 1


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("0", False)])
def test_the_environment_says_yes_and_no_in_words_or_digits(text, value, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_LOCAL", text)
    assert Settings.load({}).local is value


def test_an_unknown_flag_is_named_with_the_nearest_known():
    message = refusal({"trails": 3})
    assert message.startswith("unknown setting 'trails' in the flags; did you mean 'trials'")


def test_an_unknown_variable_is_named_with_the_nearest_known(monkeypatch):
    monkeypatch.setenv("AUTOTUNE_MEMORY_BUGDET", "600MiB")
    message = refusal()
    assert message.startswith("unknown setting 'memory_bugdet' in the environment; did you mean")
    assert "'memory_budget'" in message


def test_an_unknown_key_of_the_file_is_named_with_the_nearest_known_and_the_file(file):
    path = file("sedd = 1")
    message = refusal(settings_file=path)
    assert message.startswith(f"unknown setting 'sedd' in the file {path}; did you mean 'seed'")


@pytest.mark.parametrize("name", ["trails", "sedd"])
def test_an_unknown_name_lists_the_known_ones(name):
    assert "known: baseline, confirm, deadline, device" in refusal({name: 1})


def test_a_bad_value_is_named_with_its_place(monkeypatch):
    monkeypatch.setenv("AUTOTUNE_TRIALS", "many")
    assert refusal().startswith("trials='many' in the environment: input should be a valid int")


def test_the_place_of_a_bad_value_is_the_one_it_came_from(file, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_SEED", "-1")
    assert refusal({"slots": 2}, file("seed = 1")).startswith("seed='-1' in the environment")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trials", 0),
        ("slots", 0),
        ("global_batch", 0),
        ("num_devices", 0),
        ("quality_repeats", 0),
        ("seconds", 0),
        ("seconds", "inf"),
        ("device_seconds", -1),
        ("usd", "nan"),
        ("deadline", 0),
        ("seed", -1),
        ("seed", 2**31),
        ("device", "tpu"),
        ("study", ""),
        ("device_usd_per_hour", -0.1),
        ("memory_budget", "600 MiBs"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value):
    assert refusal({name: value}).startswith(f"{name}={value!r} in the flags: ")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("600MiB", 600 * 1024**2),
        ("1.5GiB", 1536 * 1024**2),
        ("1.5 gib", 1536 * 1024**2),
        ("80GB", 80 * 10**9),
        ("16000 kB", 16_000_000),
        (" .5TiB ", 2**39),
        ("2tb", 2 * 10**12),
        ("1MiB", 2**20),
        ("1048576B", 2**20),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-5MiB", "5 MB extra", "5XB", "8G", "1,5GiB", "5.GiB", "nan", True, None],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "text",
    ["0", 0, "0.0", "10B", "1023KiB", "1MB", "9" * 400 + "B", "9999999TB"],
    ids=lambda text: str(text)[:9],
)
def test_a_size_that_no_trial_can_use_is_refused(text):
    with pytest.raises(ValueError, match="is no size between 1 MiB and 4 EiB"):
        parse_bytes(text)


@pytest.mark.parametrize("size", ["10", 10, " 1.5 ", 8589934592, 8.5, "9" * 400])
def test_a_number_without_a_unit_is_refused_with_an_example(size):
    with pytest.raises(ValueError, match=r"^give a unit, like 8GiB$"):
        parse_bytes(size)


def test_a_unit_is_asked_for_wherever_the_budget_is_given(file, monkeypatch):
    path = file("memory_budget = 10")
    assert refusal(settings_file=path) == (
        f"memory_budget=10 in the file {path}: give a unit, like 8GiB"
    )
    monkeypatch.setenv("AUTOTUNE_MEMORY_BUDGET", "10")
    assert refusal() == "memory_budget='10' in the environment: give a unit, like 8GiB"
    assert "in the flags: give a unit" in refusal({"memory_budget": "10"})


@given(st.integers(2**20, 2**40), st.sampled_from(["B", "KiB", "MiB", "kb", "MB"]))
def test_a_whole_number_of_any_unit_is_exact(number, unit):
    factor = {"B": 1, "KiB": 1024, "MiB": 1024**2, "kb": 1000, "MB": 10**6}[unit]
    assert parse_bytes(f"{number}{unit}") == number * factor


def test_a_memory_budget_is_bytes():
    assert Settings.load({"memory_budget": "600MiB"}).memory_budget == 600 * 1024**2


def test_a_bad_size_says_how_to_write_one():
    message = refusal({"memory_budget": "lots"})
    assert message == (
        "memory_budget='lots' in the flags: 'lots' is no size; write it like 600MiB or 1.5GiB"
    )


SECRET = "postgresql://tuner:S3cret@db/studies"


def test_the_stores_password_is_not_repeated_when_it_is_refused(file):
    message = refusal(settings_file=file(f'store = ["{SECRET}"]'))
    assert message.startswith("store in the file")
    assert "S3cret" not in message


def test_a_password_under_a_mistyped_name_is_not_repeated(monkeypatch):
    monkeypatch.setenv("AUTOTUNE_STORR", SECRET)
    message = refusal()
    assert "did you mean 'store'" in message
    assert "S3cret" not in message


def test_a_refusal_leaves_nothing_chained_that_could_show_the_password(file):
    with pytest.raises(SettingsError) as caught:
        Settings.load({}, file(f'store = ["{SECRET}"]'))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("given", ["cost,quality", " cost , quality ", ["cost", "quality"]])
def test_objectives_are_a_list_or_words_with_commas(given):
    found = Settings.load({"objectives": given}).objectives
    assert found == (Objective.COST, Objective.QUALITY)


def test_the_order_of_objectives_is_kept():
    found = Settings.load({"objectives": "throughput,cost"}).objectives
    assert found == (Objective.THROUGHPUT, Objective.COST)


@pytest.mark.parametrize("given", ["", "cost,", "cost,speed", []])
def test_objectives_that_do_not_exist_are_refused(given):
    assert refusal({"objectives": given}).startswith("objectives=")


def test_an_unknown_objective_names_the_known_ones():
    message = refusal({"objectives": "speed"})
    assert message == (
        "objectives='speed' in the flags: input should be 'cost', 'throughput' or 'quality'"
    )


def test_an_objective_named_twice_is_refused():
    message = refusal({"objectives": "cost,throughput,cost"})
    assert message.endswith("in the flags: an objective is named twice; name each once")


def test_without_any_limit_the_default_number_of_trials_is_the_budget():
    assert Settings().budget() == Budget(trials=DEFAULT_TRIALS, planned_seconds=DAY)


@pytest.mark.parametrize("limit", ["seconds", "device_seconds", "usd"])
def test_any_other_limit_takes_the_place_of_the_default(limit):
    assert Settings.load({limit: 60}).budget() == Budget(**{limit: 60.0}, planned_seconds=DAY)


def test_every_limit_that_is_given_holds():
    limits = {"trials": 5, "seconds": 60.0, "device_seconds": 30.0, "usd": 2.0}
    assert Settings.load(limits).budget() == Budget(**limits, planned_seconds=DAY)


def test_planned_hours_of_0_never_end_a_study():
    assert Settings.load({"planned_hours": 0}).budget().planned_seconds is None
    assert Settings.load({"planned_hours": 2}).budget().planned_seconds == 7200


def test_rates_left_out_are_those_of_the_device_at_their_date():
    rates = Settings().rates(CPU)
    assert rates.device_usd_per_hour == pytest.approx(0.032)
    assert rates.dated == "2026-06-30"


def test_a_given_rate_replaces_its_default_alone_and_is_of_today():
    rates = Settings.load({"host_gib_usd_per_hour": 0.5}).rates(CPU)
    assert (rates.host_gib_usd_per_hour, rates.dated) == (0.5, date.today().isoformat())
    assert rates.device_usd_per_hour == Settings().rates(CPU).device_usd_per_hour


def test_a_price_book_gives_the_rates_and_its_name(tmp_path):
    book = tmp_path / "book.toml"
    parts = {"device_usd_h": 1, "device_gib_usd_h": 2, "host_gib_usd_h": 3, "nvme_gib_usd_h": 4}
    lines = ["dated = 2026-11-02", "[[components]]", 'gpu = "cpu"']
    book.write_text("\n".join(lines + [f"{key} = {rate}" for key, rate in parts.items()]))
    settings = Settings.load({"prices": book})
    assert settings.rates(CPU).nvme_gib_usd_per_hour == 4.0
    assert settings.rates(CPU).label == "2026-11-02 (book)"
    changed = Settings.load({"prices": book, "nvme_gib_usd_per_hour": 5.0}).rates(CPU)
    assert changed.label == f"{date.today()} (book, changed)"


def test_a_price_book_without_the_device_is_refused(tmp_path):
    book = tmp_path / "book.csv"
    book.write_text("instance,gpu,gpu_count,dram_gib,on_demand_usd_h\nbox,H100,1,200,3\n")
    with pytest.raises(PriceBookError, match="neither rates of parts nor a machine for"):
        Settings.load({"prices": book}).rates(CPU)


def test_a_day_that_is_none_is_refused():
    assert "is no day; write it like 2026-06-30" in refusal({"rates_dated": "soon"})


def test_a_given_date_is_kept():
    settings = Settings.load({"usd": 1, "device_usd_per_hour": 0, "rates_dated": "2026-01-31"})
    assert settings.rates(CPU).dated == "2026-01-31"


@pytest.mark.parametrize("text", ["seed = ", "\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(text, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("latin-1"))
    assert f"settings file '{path}' cannot be read" in refusal(settings_file=path)


def test_a_file_that_is_missing_is_named(tmp_path):
    assert "gone.toml' cannot be read" in refusal(settings_file=tmp_path / "gone.toml")


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().seed = 1
