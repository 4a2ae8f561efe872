"""Real trials in real processes, on CPU."""

import json
import uuid

import pytest

from search_spaces import TrainingConfig
from tests.trials.conftest import QUICK
from trials.measurement import Measurement, Outcome, Where
from trials.spec import Task, TimingPolicy, TrialSpec
from trials.workload import load_workload

MIB = 2**20


def config(**knobs):
    return TrainingConfig().with_knobs(knobs)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"checkpoint_interval": 2},
        {"optimizer_bits": 8},
        {"amp_dtype": "bf16"},
        {"amp_dtype": "fp16"},
        {"micro_batch_size": 2, "accumulation_steps": 2, "checkpoint_interval": 1},
    ],
    ids=str,
)
def test_every_knob_trains_a_model_with_dropout_tied_weights_and_frozen_layers(run, knobs):
    found = run(config=config(**knobs))
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.timing.optimizer_steps >= 2 + len(found.timing.step_seconds)
    assert found.memory.peak_device_bytes > 0


def test_accumulation_still_takes_two_optimizer_steps_before_any_is_timed(run):
    found = run(config=config(accumulation_steps=8))
    assert found.timing.optimizer_steps == 2 + len(found.timing.step_seconds)
    assert found.timing.samples_per_step == 8


def test_a_measurement_survives_its_json(run):
    found = run()
    assert Measurement.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["outcome"] == "completed"


def test_a_measurement_of_an_older_program_is_read(run):
    found = run()
    document = json.loads(found.to_json())
    del document["profile"], document["memory"]["elsewhere"]
    assert Measurement.from_json(json.dumps(document)) == found


def test_a_loader_that_is_too_slow_shows_and_leaves_the_rate_of_computing_alone(run):
    timing = run("SlowLoader", config=config(micro_batch_size=8)).timing
    assert timing.is_data_bound and timing.data_wait_seconds >= 0.217
    assert 0.08 <= min(timing.step_seconds) < 0.217


def test_a_loader_that_keeps_up_does_not_show(run):
    assert not run("byte-gpt", config=config(micro_batch_size=8)).timing.is_data_bound


def test_without_offload_every_kind_lives_on_the_device(run):
    memory = run("byte-gpt").memory
    assert memory.places == {kind: {"device": size} for kind, size in memory.by_kind.items()}


def test_kinds_of_memory_are_exact_where_theory_is(run):
    found = run("byte-gpt", config=config(micro_batch_size=4))
    kinds = found.memory.by_kind
    parameters = 830_208
    assert kinds["parameters"] == kinds["gradients"] == 4 * parameters
    assert kinds["optimizer_state"] == pytest.approx(8 * parameters, rel=0.001)


SCALED_BYTES = {8: 1 + 4 / 256, 4: 0.5 + 4 / 128}
"""Of a value of optimizer state and its share of a block's scale."""


def adam_bytes(bits):
    """AdamW's state of byte-gpt in theory: tensors under 4,096 elements keep 32 bits."""
    sizes = [p.numel() for p in load_workload("byte-gpt").build().parameters()]
    return sum(2 * size * (SCALED_BYTES.get(bits, 4) if size >= 4096 else 4) for size in sizes)


def test_fewer_bits_take_less_memory_by_what_theory_says(run):
    use = {bits: run("byte-gpt", config=config(optimizer_bits=bits)).memory for bits in (32, 8, 4)}
    for bits, memory in use.items():
        assert memory.by_kind["optimizer_state"] == pytest.approx(adam_bytes(bits), rel=0.01)
    # The peak falls by less: bitsandbytes' CPU kernels take memory of their own in a step.
    saved = use[32].peak_device_bytes - use[8].peak_device_bytes
    assert 0.3 < saved / (adam_bytes(32) - adam_bytes(8)) < 1.1


def test_the_more_blocks_recompute_the_less_memory_it_takes(run):
    every, second, none = (
        run("byte-gpt", config=config(micro_batch_size=32, checkpoint_interval=n)).memory
        for n in (1, 2, 0)
    )
    kept = [memory.by_kind["activations"] for memory in (every, second, none)]
    peaks = [memory.peak_device_bytes for memory in (every, second, none)]
    assert kept == sorted(kept) and kept[0] < 0.5 * kept[2]
    assert peaks == sorted(peaks) and peaks[0] < 0.95 * peaks[2]


def test_a_larger_micro_batch_takes_more_memory(run):
    peaks = [
        run("byte-gpt", config=config(micro_batch_size=size)).memory.peak_device_bytes
        for size in (1, 4, 16)
    ]
    assert peaks == sorted(peaks) and peaks[2] > 1.5 * peaks[0]


def test_peak_memory_of_equal_trials_is_equal(run):
    first, second = (
        run("byte-gpt", config=config(micro_batch_size=8)).memory.peak_device_bytes
        for _ in range(2)
    )
    assert second == pytest.approx(first, rel=0.03)


@pytest.mark.parametrize("budget", [3, 8, 14, 20], ids=lambda n: f"{n}MiB")
def test_a_budget_is_enforced_and_running_out_of_it_is_an_outcome(run, budget):
    found = run("byte-gpt", config=config(micro_batch_size=16), memory_budget_bytes=budget * MIB)
    assert found.outcome == Outcome.OUT_OF_MEMORY, found.reason
    assert found.failure.where == Where.DEVICE
    assert found.failure.attempted_bytes > budget * MIB


def test_what_fits_its_budget_completes_within_it(run):
    found = run("byte-gpt", config=config(micro_batch_size=8), memory_budget_bytes=40 * MIB)
    assert found.outcome == Outcome.COMPLETED
    assert found.memory.peak_device_bytes <= 40 * MIB


def test_the_worst_batch_decides_whether_a_config_fits(run):
    typical, worst = (
        run(name, config=config(micro_batch_size=64), memory_budget_bytes=24 * MIB).outcome
        for name in ("Small", "NeedsMore")
    )
    assert (typical, worst) == (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY)


def test_a_timed_batch_that_needs_more_than_the_worst_one_raises_the_peak(run):
    roomy = run("Grows", config=config(micro_batch_size=64)).memory.peak_device_bytes
    true = run("NeedsMore", config=config(micro_batch_size=64)).memory.peak_device_bytes
    assert roomy == pytest.approx(true, rel=0.4) and true > 24 * MIB
    tight = run("Grows", config=config(micro_batch_size=64), memory_budget_bytes=24 * MIB)
    assert tight.outcome == Outcome.OUT_OF_MEMORY


def test_each_micro_batch_is_tried_in_a_process_of_its_own(host):
    """Also after one that ran out of memory: nothing shrinks within a process."""
    pids = []
    for size, budget in ((64, 8), (32, 8), (1, 256)):
        spec = TrialSpec(
            workload="byte-gpt",
            config=config(micro_batch_size=size),
            trial_id=uuid.uuid4().hex,
            memory_budget_bytes=budget * MIB,
            timing=QUICK,
        )
        trial = host.start(spec)
        pids.append(trial.pid)
        found = trial.result()
        assert (found.outcome == Outcome.COMPLETED) == (size == 1), found.reason
    assert len(set(pids)) == 3


def test_the_next_trial_starts_from_the_idle_baseline(run):
    def baseline():
        return run("byte-gpt").memory.peak_host_bytes

    before = baseline()
    run("byte-gpt", config=config(micro_batch_size=16), memory_budget_bytes=8 * MIB)
    assert baseline() == pytest.approx(before, rel=0.02)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("RaisesInBuild", "ZeroDivisionError: no width given ("),
        ("WrongBatch", "a batch of micro-batch size 1 has 2 samples"),
        ("NoBlocks", "names none"),
    ],
)
def test_a_broken_workload_is_invalid_with_its_reason(run, workload, words):
    found = run(workload, config=config(checkpoint_interval=1))
    assert found.outcome == Outcome.INVALID
    assert words in found.reason and found.failure.is_users_fault


def test_a_model_held_in_fp16_is_a_mistake_and_no_matter_of_memory(run):
    found = run("Halved", config=config(amp_dtype="fp16"))
    assert found.outcome == Outcome.INVALID and not found.is_worth_another_run
    assert "unscale FP16 gradients" in found.reason


def test_a_loss_of_nan_diverges(run):
    found = run("LossIsNan")
    assert found.outcome == Outcome.DIVERGED
    assert found.reason == "the loss is nan after 1 steps"


def test_a_healthy_run_that_prints_the_word_error_stays_healthy(run):
    assert run("Prints").outcome == Outcome.COMPLETED


def test_a_workload_that_exits_is_a_crash_with_its_code(run):
    found = run("Exits")
    assert found.outcome == Outcome.CRASHED
    assert "exit code 3" in found.reason and found.failure.phase == "build"


def test_a_library_that_ends_the_process_for_memory_is_heard_and_tried_once_more(run):
    found = run("EndsForMemory")
    assert (found.outcome, found.failure.where) == (Outcome.OUT_OF_MEMORY, Where.DEVICE)
    assert found.failure.phase == "warm_up" and found.is_worth_another_run
    assert "exit code 1: Error out of memory at line 534" in found.reason


def test_a_trial_past_its_deadline_is_ended_and_names_its_phase(run):
    slow = TimingPolicy(min_steps=10_000, max_steps=10_000)
    found = run("byte-gpt", deadline_seconds=1.0, timing=slow)
    assert found.outcome == Outcome.TIMED_OUT
    assert found.reason == "not done after 1 s, in phase timing"
    assert found.process_seconds < 10


def test_quality_is_measured_at_a_fixed_number_of_samples(run):
    found = run(
        "byte-gpt", task=Task.QUALITY, quality_samples=64, config=config(micro_batch_size=8)
    )
    assert found.quality.samples == 64
    assert 3.0 < found.quality.value < 5.0


def test_quality_is_shared_by_the_configs_of_a_numerics_class(run):
    one, other = (
        run("byte-gpt", task=Task.QUALITY, quality_samples=32, config=config(**knobs))
        for knobs in (
            {"micro_batch_size": 8},
            {"micro_batch_size": 2, "accumulation_steps": 4, "checkpoint_interval": 1},
        )
    )
    assert other.quality.value == pytest.approx(one.quality.value, rel=1e-4)


def test_a_workload_is_described_from_one_real_build(run):
    facts = run("Small", task=Task.DESCRIBE).facts
    assert facts.num_parameters == 64 * 32 + 5 * (32 * 32 + 32)
    assert facts.num_trainable == facts.num_parameters - (32 * 32 + 32)
    assert (facts.num_blocks, facts.unit, facts.quality_direction) == (4, "tokens", "maximize")
    assert (facts.largest_parameter, facts.learning_rate) == (64 * 32, 1e-3)


def test_a_workload_with_nothing_to_train_is_refused(run):
    assert "no parameter that requires gradients" in run("Frozen", task=Task.DESCRIBE).reason


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("LossIsAFloat", "got a Python float; return the tensor itself"),
        ("BreaksInTorch", "small.py:"),
        ("BreaksInBackward", "modified by an inplace operation"),
    ],
)
def test_a_workload_that_does_not_train_is_found_when_it_is_described(run, workload, words):
    found = run(workload, task=Task.DESCRIBE)
    assert (found.outcome, found.failure.phase) == (Outcome.INVALID, "train")
    assert words in found.reason and found.failure.is_users_fault


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("RaisesInEvaluate", "KeyError: held out ("),
        ("EvaluatesToNothing", "evaluate() must return one number"),
    ],
)
def test_an_evaluation_that_fails_is_found_when_it_is_described(run, workload, words):
    found = run(workload, task=Task.DESCRIBE)
    assert (found.outcome, found.failure.phase) == (Outcome.INVALID, "evaluate")
    assert words in found.reason and found.failure.is_users_fault


def test_an_evaluation_that_takes_long_is_described_without_its_end(run):
    found = run("EvaluatesForEver", task=Task.DESCRIBE, deadline_seconds=60)
    assert found.outcome == Outcome.COMPLETED, found.reason


def test_a_large_model_is_described_without_a_step(run):
    found = run("TooLargeToRehearse", task=Task.DESCRIBE)
    assert found.facts.num_parameters > 50_000_000


def test_an_evaluation_without_a_number_is_invalid(run):
    found = run("EvaluatesToNothing", task=Task.QUALITY, quality_samples=8)
    assert (found.outcome, found.failure.phase) == (Outcome.INVALID, "evaluate")
    assert found.reason.startswith("evaluate() must return one number, got None")
    assert found.failure.is_users_fault


def test_the_environment_names_device_and_versions(run):
    environment = run(task=Task.ENVIRONMENT, num_threads=1).environment
    assert environment.device_kind == "cpu" and environment.num_threads == 1
    assert environment.device_memory_bytes > 2**30
    assert environment.torch and environment.bitsandbytes


def test_a_device_that_is_not_there_is_a_fault_of_the_machine(run):
    found = run(task=Task.ENVIRONMENT, device="cuda:7")
    assert found.outcome == Outcome.CRASHED
    assert "no device 'cuda:7'" in found.reason


def test_a_trial_too_slow_to_matter_is_timed_no_longer_than_it_takes_to_tell(run):
    timing = run("byte-gpt", config=config(micro_batch_size=8), beaten_seconds=1e-6).timing
    assert timing.is_beaten and len(timing.step_seconds) < 10
    assert timing.low_seconds > 1e-6
