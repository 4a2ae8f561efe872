"""The commands that count in other prices, on a store of made-up GPU trials."""

import csv
import io
import json
import os
from decimal import Decimal
from hashlib import sha256

import pytest

from autotune.cli import run_command
from autotune.records import Scores
from autotune.store.sql import SqlStore
from tests.autotune.prices.books import A100, make_trial_on_gpu
from tests.factories import MIB, make_key, make_oom, make_study_record, make_trial

BOOK = """
name = "mine"
dated = 2026-11-20

[[components]]
device_usd_h = 1
device_gib_usd_h = 0.1
host_gib_usd_h = 0
nvme_gib_usd_h = 0

[[offers]]
provider = "cloud"
instance = "a100"
gpu = "A100-80GB"
gpu_count = 1
dram_gib = 200
on_demand_usd_h = 2.50
"""
TRIALS = (
    make_trial_on_gpu(0, study="study", device_gib=60, seconds=4.5),
    make_trial_on_gpu(1, study="study", device_gib=5, seconds=6.75),
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AUTOTUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AUTOTUNE_STORE", str(tmp_path / "studies.db"))


@pytest.fixture
def store(tmp_path):
    store = SqlStore.open(str(tmp_path / "studies.db"))
    store.create_study(make_study_record(environment=A100))
    yield store
    store.close()


@pytest.fixture
def filled(store):
    for trial in TRIALS:
        leased = make_trial(trial.number, config=trial.config)
        store.open_trial(leased)
        store.record_measurement(leased, make_key(leased), 600 * MIB, trial.measurement)
        rates = make_study_record().spec.rates
        cost = rates.usd_per_million_samples(trial.measurement)
        speed = trial.measurement.timing.samples_per_second
        scores = Scores(
            cost_usd_per_million_samples=cost, throughput_samples_per_second=speed, quality=2.5
        )
        store.tell_trial(leased, scores, -0.5)
    store.set_front("study", [0], 0)
    return store


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(BOOK)
    return str(path)


def documents(capsys, *arguments):
    assert run_command([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def digest(tmp_path):
    return sha256((tmp_path / "studies.db").read_bytes()).hexdigest()


def test_the_front_is_shown_beside_the_old_one(filled, book, capsys):
    assert run_command(["reprice", "study", "--prices", book]) == 0
    out = capsys.readouterr().out
    assert "$/M samples then" in out and "$/M samples now" in out
    assert "Prices then: 2026-06-30; now: 2026-11-20 (mine)." in out
    assert "Recommended then: trial 0; now: trial 1, the cheapest" in out


def test_json_has_exact_money_with_book_day_and_currency(filled, book, capsys):
    """4.5 s for 8 samples are 156.25 hours for a million."""
    found = documents(capsys, "reprice", "study", "--prices", book, "--by", "instance")
    quote = next(document for document in found if document["trial"] == 0)["quote"]
    assert quote["usd_per_hour"] == "2.5"
    assert Decimal(quote["usd_per_million_samples"]) == Decimal("390.625")
    assert (quote["basis"], quote["instance"]) == ("measured", "a100")
    assert found[0]["prices"] == {"book": "mine", "dated": "2026-11-20", "currency": "USD"}
    assert found[0]["before"]["dated"] == "2026-06-30"


def test_an_epoch_of_given_samples_has_its_price(filled, book, capsys):
    given = ["--prices", book, "--by", "instance", "--samples", "8000"]
    found = documents(capsys, "reprice", "study", *given)
    assert Decimal(found[0]["quote"]["usd_per_epoch"]) == Decimal("3.125")
    assert run_command(["reprice", "study", *given]) == 0
    assert "$/epoch now" in capsys.readouterr().out


@pytest.mark.parametrize(("target", "usd"), [("2.5", "390.625"), ("2.4", None)])
def test_the_money_to_a_quality_where_it_is_reached(filled, book, capsys, target, usd):
    """Both trials are at 2.5 after the samples that quality is measured after."""
    given = ["--prices", book, "--by", "instance", "--target", target]
    found = documents(capsys, "reprice", "study", *given)
    quote = next(document for document in found if document["trial"] == 0)["quote"]
    share = Decimal(make_study_record().facts.quality_samples) / 1_000_000
    assert quote["usd_to_target"] == (usd and f"{(Decimal(usd) * share).normalize():f}")
    assert run_command(["reprice", "study", *given]) == 0
    name = make_study_record().facts.quality_name
    assert f"$ to {name} {target}" in capsys.readouterr().out


def test_csv_has_a_row_for_each_point(filled, book, capsys):
    assert run_command(["reprice", "study", "--prices", book, "--output", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["trial"] for row in rows} == {"0", "1"}
    assert rows[0]["quote.usd_per_million_samples"]


def test_nothing_in_the_store_changes(filled, book, tmp_path, capsys):
    filled.close()
    before = digest(tmp_path)
    assert run_command(["reprice", "study", "--prices", book]) == 0
    assert run_command(["sensitivity", "study", "--prices", book]) == 0
    assert digest(tmp_path) == before


def test_sensitivity_says_where_the_winner_changes(filled, book, capsys):
    """1 + 6m and 1.5 (1 + 0.5m) an hour: equal at m = 0.5 / 5.25."""
    given = ["--prices", book, "--of", "device-memory"]
    found = documents(capsys, "sensitivity", "study", *given)
    assert [reign["trial"] for reign in found] == [0, 1]
    assert found[0]["to_multiplier_exact"] == found[1]["from_multiplier_exact"] == "2/21"
    assert found[1]["prices"] == {"book": "mine", "dated": "2026-11-20"}
    assert run_command(["sensitivity", "study", *given]) == 0
    assert "device-memory: the winner changes at x0.0952381 to trial 1." in capsys.readouterr().out


def test_without_a_book_the_studys_own_prices_are_multiplied(filled, capsys):
    found = documents(capsys, "sensitivity", "study")
    assert {reign["prices"]["dated"] for reign in found} == {"2026-06-30"}
    assert len({reign["component"] for reign in found}) == 4


@pytest.mark.parametrize("name", ["flips.svg", "flips.html"])
def test_a_plot_is_written_and_not_over_another_file(filled, tmp_path, capsys, name):
    line = ["sensitivity", "study", "--plot", str(tmp_path / name)]
    assert run_command(line) == 0
    assert "<svg" in (tmp_path / name).read_text()
    assert run_command(line) == 2
    assert "exists; give --force" in capsys.readouterr().err
    assert run_command([*line, "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reprice", "study", "--by", "machine"], "--by 'machine'; known: component, instance"),
        (["sensitivity", "study", "--of", "nvm"], "--of 'nvm'; did you mean 'nvme'?"),
        (["sensitivity", "study", "--plot", "x.png"], "name it .svg or .html"),
        (["reprice", "study", "--prices", "gone.csv"], "price book 'gone.csv' cannot be read"),
    ],
)
def test_a_wrong_word_is_refused(filled, arguments, words, capsys):
    assert run_command(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reprice", "sensitivity"])
def test_a_study_without_measurements_is_told(store, command, capsys):
    leased = make_trial(0)
    store.open_trial(leased)
    store.record_measurement(leased, make_key(leased), 600 * MIB, make_oom())
    store.tell_trial(leased, Scores(), 0.5)
    assert run_command([command, "study"]) == 3
    assert "study 'study' has no trial that completed" in capsys.readouterr().err


def test_a_book_that_holds_no_trial_exits_as_what_did_not_fit(filled, tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(BOOK.replace("dram_gib = 200", "dram_gib = 16"))
    assert run_command(["reprice", "study", "--prices", str(path), "--by", "instance"]) == 5
    assert (
        "misses host memory (21 GiB needed, 16 GiB there, 5 GiB short)" in capsys.readouterr().err
    )


def test_an_old_book_and_its_bad_rows_warn(filled, tmp_path, capsys):
    path = tmp_path / "old.toml"
    bad = '\n[[offers]]\ninstance = "x"\ndram_gib = 1\non_demand_usd_h = -1\n'
    path.write_text(BOOK.replace("2026-11-20", "2020-01-31") + bad)
    assert run_command(["reprice", "study", "--prices", str(path)]) == 0
    errors = capsys.readouterr().err
    assert "warning: price book 'mine' is" in errors and "days old (2020-01-31)" in errors
    assert "warning: mine line 19: on_demand_usd_h=-1 is not above 0" in errors
