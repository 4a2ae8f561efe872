"""The usual path to less memory: what is kept, what is not, where it ends."""

import json
from contextlib import closing

import pytest

from autotune.playbook import MOVES, Path, Reading, Status, end_of, space_of_path, walk
from autotune.playing import Measurer
from autotune.store.sql import SqlStore
from autotune.workers import WorkersRequest, open_workers
from search_spaces import DeviceFacts, TrainingConfig, refusal
from tests.autotune import simulated
from tests.autotune.commands import call_here, kept_helper
from tests.autotune.tuning import make_record
from tests.benchmarks import walkthroughs

GIB = 2**30
CUDA = DeviceFacts(kind="cuda", compute_capability=(8, 0))
START = TrainingConfig(micro_batch_size=8)
NAMES = ["profile", "AMP", "checkpointing", "8-bit optimizer", "offload", "quantized weights"]


def reading_of(config):
    peak = 16 * GIB
    peak -= 2 * GIB * (config.amp_dtype == "bf16")
    peak -= 3 * GIB * (config.checkpoint_interval == 1)
    peak -= 4 * GIB * (config.optimizer_bits == 8)
    peak -= 5 * GIB * (config.offload_target == "cpu")
    return Reading(peak_bytes=peak, seconds_per_sample=1.0, usd_per_million_samples=2.0)


def walked(evaluate=reading_of, *, target=None, held=None, blocks=4, device=CUDA):
    path = Path(start=START, held=held or {}, target_bytes=target, num_blocks=blocks)
    return list(walk(path, evaluate, lambda config: refusal(config, device)))


def test_every_step_is_there_and_held_against_the_last_kept():
    steps = walked()
    assert [step.name for step in steps] == NAMES
    assert [step.saved_bytes for step in steps[1:5]] == [2 * GIB, 3 * GIB, 4 * GIB, 1 * GIB]
    assert steps[4].config.optimizer_bits == 32
    assert end_of(steps, None) == (
        "every step was taken, since no target was given; the last kept is offload"
    )


def test_it_stops_at_the_step_that_fits_and_names_the_rest():
    steps = walked(target=12 * GIB)
    assert [step.status for step in steps] == [*[Status.KEPT] * 3, *[Status.NOT_TRIED] * 3]
    assert end_of(steps, 12 * GIB) == "it stops at checkpointing: it fits the target"


def test_a_target_that_nothing_reaches_is_said():
    assert end_of(walked(target=GIB), GIB).endswith("does not fit the target")


def test_a_step_that_saves_nothing_is_set_aside_and_not_built_on():
    def evaluate(config):
        if config.amp_dtype == "bf16":
            return Reading(peak_bytes=17 * GIB, seconds_per_sample=1.0)
        return reading_of(config)

    steps = walked(evaluate)
    assert steps[1].status == Status.SET_ASIDE
    assert steps[1].saved_bytes == -GIB
    assert steps[2].config.amp_dtype == "fp32"


def test_what_cannot_run_is_shown_with_its_reason():
    old = DeviceFacts(kind="cuda", compute_capability=(7, 0), missing=(("lora", "no peft"),))
    steps = walked(blocks=0, device=old)
    assert steps[1].config.amp_dtype == "fp16"
    assert (steps[2].status, steps[2].why) == (
        Status.NOT_POSSIBLE,
        "the workload names no blocks; return them from blocks()",
    )
    assert (steps[5].status, steps[5].why) == (Status.NOT_POSSIBLE, "no peft")


def test_a_held_knob_is_not_changed():
    steps = walked(held={"optimizer_bits": "32"})
    assert (steps[3].status, steps[3].why) == (
        Status.NOT_POSSIBLE,
        "held by --set optimizer_bits=32",
    )
    assert steps[4].status == Status.KEPT


def test_the_path_goes_on_from_a_start_that_does_not_fit():
    def evaluate(config):
        if config.checkpoint_interval == 0:
            return Reading(is_out_of_memory=True, reason="needs at least 20 GiB")
        return reading_of(config)

    steps = walked(evaluate)
    assert steps[1].why == "does not fit: needs at least 20 GiB"
    assert steps[2].why == "it fits where the last did not"
    assert steps[2].saved_bytes is None
    assert steps[3].saved_bytes == 4 * GIB


def test_a_step_that_breaks_is_not_possible():
    def evaluate(config):
        return Reading(reason="no linear layers") if config.lora_rank else reading_of(config)

    last = walked(evaluate)[-1]
    assert (last.status, last.why) == (Status.NOT_POSSIBLE, "no linear layers")


def test_the_space_of_a_path_holds_every_config_that_a_walk_comes_to():
    configs = set(space_of_path({}, 8, 1).combinations())
    assert {step.config for step in walked()} <= configs
    assert len(MOVES) == len(NAMES) - 1


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with kept_helper():
        yield f"sqlite:///{tmp_path_factory.mktemp('playbook') / 'studies.db'}"


def test_a_measured_path_is_told_with_its_money(store):
    line = ["playbook", "--local", "--global-batch", "4", "--store", store, "--output", "json"]
    done = call_here(*line, "--objectives", "cost", "--memory-budget", "60MiB")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    first = found["steps"][0]
    assert [step["step"] for step in found["steps"]] == NAMES
    assert found["end"] == "it stops at profile: it fits the target"
    assert 0 < first["peak_device_bytes"] < 60 * 2**20
    assert first["usd_per_million_units"] > 0
    assert SqlStore.open(store).studies() == []


def test_a_config_is_measured_once_and_answered_from_the_store(tmp_path):
    record = make_record(space=space_of_path({}, 8, 1))
    with closing(SqlStore.open(f"sqlite:///{tmp_path / 'studies.db'}")) as kept:
        workers = open_workers(WorkersRequest(num_slots=1, runner=simulated.RUNNER), is_local=True)
        with closing(workers):
            measurer = Measurer(kept, workers, record)
            first = measurer.reading(START)
        assert Measurer(kept, workers, record).reading(START) == first  # no worker is left
    assert first.peak_bytes == simulated.device_bytes(START) and first.quality is not None


def test_a_step_that_only_wins_time_is_kept():
    def evaluate(config):
        seconds = 0.2 if config.amp_dtype == "bf16" else 1.0
        return Reading(peak_bytes=16 * GIB, seconds_per_sample=seconds)

    steps = walked(evaluate)
    assert (steps[1].status, steps[1].why) == (Status.KEPT, "it saves no memory here, but time")
    assert {step.status for step in steps[2:]} == {Status.SET_ASIDE}
    assert steps[1].more_time == pytest.approx(-0.8)


def test_checkpointing_is_taken_up_again_when_the_peak_has_moved():
    def evaluate(config):
        step, activations = 16 * GIB, 6 * GIB
        if config.optimizer_bits == 8:
            step = 4 * GIB
        if config.checkpoint_interval:
            activations = 1 * GIB
        return Reading(peak_bytes=max(step, activations), seconds_per_sample=1.0)

    steps = walked(evaluate)
    assert steps[2].status == Status.SET_ASIDE
    assert (steps[-1].name, steps[-1].status) == ("checkpointing, again", Status.KEPT)
    assert steps[-1].saved_bytes == 2 * GIB


@pytest.mark.slow
def test_published_figures_are_held_against_bytes_per_parameter():
    found = walkthroughs.predicted("13B", {"amp_dtype": "bf16"})
    assert found.facts.num_parameters == 13_015_864_320
    peaks = {step.name: step.reading.peak_bytes / 1e9 for step in found.steps if step.reading}
    assert peaks["profile"] > 208.2 > walkthroughs.START_GB
    assert peaks["8-bit optimizer"] == pytest.approx(130, rel=0.02)  # 4 + 4 + 2 bytes
    assert peaks["offload"] == pytest.approx(104, rel=0.02)  # 4 + 4 bytes
    assert peaks["quantized weights"] < walkthroughs.START_GB
    verdict = walkthroughs.judged_13b(found)[0]
    assert "cannot be right" in verdict and "208 GB" in verdict and "5.0 bytes" in verdict


def test_an_estimate_takes_the_same_steps(store, tmp_path):
    line = ["playbook", "--estimate", "--local", "--global-batch", "4", "--output", "json"]
    done = call_here(*line, XDG_DATA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["predicted"] and [step["step"] for step in found["steps"]] == NAMES
    peaks = [step["peak_device_bytes"] for step in found["steps"] if step["status"] == "kept"]
    assert peaks == sorted(peaks, reverse=True)


def test_a_table_says_where_it_ends(store, tmp_path):
    line = ["playbook", "--estimate", "--local", "--memory-budget", "1GiB"]
    done = call_here(*line, XDG_DATA_HOME=str(tmp_path))
    assert "It stops at profile: it fits the target." in done.stdout
    assert done.stdout.count("not tried") == len(MOVES)
