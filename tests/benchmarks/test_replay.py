"""The benchmark of samplers: tables, metrics, samplers, and what is printed."""

import json
import subprocess
import sys
from dataclasses import replace

import moocore
import numpy as np
import pytest

from search_spaces import TrainingConfig
from tests.benchmarks.replay.errors import TableError
from tests.benchmarks.replay.metrics import Yardstick, estimated, scored
from tests.benchmarks.replay.plot import drawn
from tests.benchmarks.replay.samplers import SAMPLERS, Rule, sampler_maker
from tests.benchmarks.replay.study import KeptStudies, StudyKey, replay, study_of
from tests.benchmarks.replay.synthetic import BATCH, synthetic_table
from tests.benchmarks.replay.table import Table, read_table, write_table


@pytest.fixture(scope="module")
def table():
    return synthetic_table()


@pytest.fixture(scope="module")
def yardstick(table):
    return Yardstick(table)


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.gz"])
def test_a_table_is_read_as_it_was_written(table, tmp_path, name):
    write_table(table, tmp_path / name)
    found = read_table(tmp_path / name)
    assert found.configs == table.configs
    assert found.header == table.header
    np.testing.assert_allclose(found.losses, table.losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (1, lambda found: {**found, "format": 2}, "line 1: format=2"),
        (1, lambda found: {**found, "colour": 1}, "line 1: unknown key 'colour'"),
        (3, lambda found: {**found, "outcome": "exploded"}, "line 3: outcome='exploded'"),
        (3, lambda found: {**found, "trial_seconds": 0}, "line 3: trial_seconds"),
        (3, lambda found: {**found, "constraints": {}}, "line 3: constraints is empty"),
        (3, lambda found: {**found, "config": {"micro": 1}}, "line 3: .*unknown knob 'micro'"),
        (2, lambda found: {**found, "samples_per_second": None}, "line 2: .*without throughput"),
        (3, lambda found: {**found, "config": {"accumulation_steps": 16}}, "2 lines of"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(table, tmp_path, number, change, words):
    path = tmp_path / "some.jsonl"
    write_table(table, path)
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(change(json.loads(lines[number - 1])))
    path.write_text("\n".join(lines))
    with pytest.raises(TableError, match=words):
        read_table(path)


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("{", "line 1 is no JSON")])
def test_what_is_no_table_is_refused(tmp_path, text, words):
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    with pytest.raises(TableError, match=words):
        read_table(path)


def test_an_inverted_prior_turns_every_comparison_round(table):
    peaks = [entry.prior.peak_device_bytes for entry in table.entries]
    turned = [entry.prior.peak_device_bytes for entry in table.with_inverted_prior().entries]
    assert list(np.argsort(turned, kind="stable")) != list(np.argsort(peaks, kind="stable"))
    pairs = [(a, b) for a in range(40) for b in range(40) if peaks[a] < peaks[b]]
    assert all(turned[a] > turned[b] for a, b in pairs)


def test_the_share_is_the_hypervolume_over_the_fronts(table, yardstick):
    front = np.flatnonzero(moocore.is_nondominated(table.losses))
    some = [int(front[0]), int(front[-1])]
    low, high = table.losses[front].min(axis=0), table.losses[front].max(axis=0)
    reference = high + 0.1 * (high - low)
    part, whole = (
        moocore.hypervolume(table.losses[places], ref=reference) for places in (some, front)
    )
    assert 0 < part < whole
    assert yardstick.share(some) == pytest.approx(part / whole)
    assert yardstick.share(front) == pytest.approx(1.0)


def test_shares_after_each_trial_are_those_of_what_was_tried(table, yardstick):
    places = list(range(40))
    shares = yardstick.shares(places)
    assert shares == pytest.approx([yardstick.share(places[: n + 1]) for n in range(40)])


def test_a_study_is_scored_by_when_it_had_the_front(table, yardstick):
    best = int(np.argmin(table.losses[:, 0]))
    too_big = int(np.flatnonzero(~table.is_feasible)[0])
    rest = [place for place in range(40) if place not in (best, too_big)]
    score = scored(table, yardstick, [too_big, best, *rest])
    assert score.gap_at == (0.0, 0.0, 0.0, 0.0)
    assert score.out_of_memory >= 1
    assert 2 < score.trials_to[0] <= score.trials_to[1] <= score.trials_to[2] <= 40
    spent = [table.entries[p].trial_seconds for p in [too_big, best, *rest]]
    assert score.seconds_to[2] == pytest.approx(sum(spent[: int(score.trials_to[2])]))


def test_a_study_without_any_fit_is_wholly_off(table, yardstick):
    too_big = int(np.flatnonzero(~table.is_feasible)[0])
    score = scored(table, yardstick, [too_big])
    assert score.gap_at[0] == 1.0
    assert score.trials_to == (float("inf"),) * 3


def test_a_median_has_an_interval_and_may_never_be_reached():
    found = estimated([3.0, 4.0, 5.0, 6.0, 50.0])
    assert found.low <= found.median == 5.0 <= found.high <= 50.0
    assert estimated([3.0, float("inf"), float("inf")]).median == float("inf")


@pytest.mark.parametrize("name", ["random", "tpe-multivariate", "nsga2", "rule"])
def test_a_sampler_tries_no_config_twice(table, yardstick, name):
    study = replay(table, yardstick, SAMPLERS[name](table, 0), 40)
    assert len(set(study.places)) == len(study.places) > 5


def test_the_rule_doubles_and_then_saves_memory(table, yardstick):
    study = replay(table, yardstick, Rule(table, 0), 40)
    tried = [table.configs[place] for place in study.places]
    plain = [TrainingConfig(micro_batch_size=n, accumulation_steps=BATCH // n) for n in (1, 2, 4)]
    assert tried[:3] == plain
    failed = next(c for c, p in zip(tried, study.places, strict=True) if not table.is_feasible[p])
    after = tried[tried.index(failed) + 1]
    assert after == replace(failed, checkpoint_interval=1)
    assert tried[-1].optimizer_bits == 8


def test_an_unknown_sampler_is_refused_by_name():
    with pytest.raises(TableError, match="no sampler 'magic'; there are random"):
        sampler_maker("magic")


def test_a_sampler_of_ones_own_is_named_by_its_place():
    assert sampler_maker("tests.benchmarks.replay.samplers:Rule") is Rule
    with pytest.raises(TableError, match=r"no sampler 'tests\.benchmarks:Missing'"):
        sampler_maker("tests.benchmarks:Missing")


def test_a_sampler_may_be_given_the_inverted_prior(table):
    given = {}

    def make(found, seed):
        given["priors"] = [entry.prior for entry in found.entries]
        return Rule(found, seed)

    SAMPLERS["looks"] = make
    try:
        sampler_maker("looks@inverted")(table, 0)
    finally:
        del SAMPLERS["looks"]
    assert given["priors"] == [entry.prior for entry in table.with_inverted_prior().entries]


def test_a_kept_study_is_not_replayed(table, yardstick, tmp_path):
    path = tmp_path / "kept.jsonl"
    key = StudyKey(table=table.hash, sampler="random", seed=1, trials=40)
    first = KeptStudies(path).get_or(key, table, yardstick, study_of)
    with path.open("a") as file:
        file.write('{"study": {"tab')  # killed while writing

    def refuse(*_):
        raise AssertionError("replayed again")

    assert KeptStudies(path).get_or(key, table, yardstick, refuse) == first


def test_the_picture_has_every_table_and_sampler(yardstick):
    curve = yardstick.shares(range(40))
    picture = drawn({"one": {"curves": {"random": [curve, curve[:20]], "rule": [curve]}}})
    assert picture.count("<polyline") == 2
    assert all(f">{word}</text>" in picture for word in ("one", "random", "rule"))


def test_the_command_prints_metrics_with_their_intervals(table, tmp_path):
    path = tmp_path / "some.jsonl"
    write_table(Table(table.header, table.entries), path)
    words = ["--seeds", "2", "--table", str(path), "--sampler", "random", "--sampler", "rule"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.replay", *words, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)["synthetic"]
    assert found["table"]["configs"] == 40
    assert found["samplers"]["random"]["n"] == 2
    for sampler in ("random", "rule"):
        for name in ("trials_to_95", "seconds_to_95", "gap_at_8", "out_of_memory"):
            assert set(found["samplers"][sampler][name]) == {"median", "low", "high"}
