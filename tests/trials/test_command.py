"""Programs of any kind as workloads: real processes, on CPU."""

import json
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from search_spaces import TrainingConfig
from trials.command import config_document
from trials.measurement import Outcome, Where
from trials.processes import TRIAL_ID_VARIABLE, tagged
from trials.spec import Task, TimingPolicy, TrialSpec

MIB = 2**20
WORKLOADS = Path(__file__).parents[1] / "assets" / "workloads"
PYTHON = f"command:{shlex.quote(sys.executable)}"
STEPS = "for _ in range(100): time.sleep(0.01); report(step_seconds=0.01)"
START = """
import json, os, signal, subprocess, sys, time
config = json.loads(os.environ["AUTOTUNE_CONFIG"])
file = open(os.environ["AUTOTUNE_REPORT_FILE"], "w")
def report(**line):
    print(json.dumps(line), file=file, flush=True)
"""


def config(**knobs):
    return TrainingConfig().with_knobs(knobs)


@pytest.fixture
def run_program(run, tmp_path):
    """Run one trial of a Python program, which has ``report`` and ``config``."""

    def run_one(code, **fields):
        script = tmp_path / "program.py"
        script.write_text(START + code)
        return run(f"{PYTHON} {script}", **fields)

    return run_one


def run_train(run, **fields):
    return run(f"{PYTHON} {WORKLOADS / 'train.py'}", **fields)


def test_the_example_is_timed_at_its_batch(run):
    found = run_train(run, config=config(micro_batch_size=4, accumulation_steps=2))
    assert found.outcome == Outcome.COMPLETED, found.reason
    assert found.timing.samples_per_step == found.timing.units_per_step == 8
    assert found.timing.optimizer_steps == 2 + len(found.timing.step_seconds)
    assert 5 * MIB < found.memory.peak_device_bytes < 50 * MIB


def test_the_example_says_what_it_is(run):
    facts = run_train(run, task=Task.DESCRIBE).facts
    assert (facts.num_parameters, facts.num_trainable, facts.num_blocks) == (64, 64, 0)
    assert (facts.quality_name, facts.quality_direction) == ("squared error", "minimize")


def test_the_example_learns_the_same_however_its_batch_is_split(run):
    one, other = (
        run_train(run, task=Task.QUALITY, quality_samples=512, config=config(**knobs)).quality
        for knobs in ({"micro_batch_size": 8}, {"accumulation_steps": 8})
    )
    assert one.value == pytest.approx(other.value) and one.value < 0.1
    assert one.samples == 512


def test_a_knob_that_the_program_does_not_name_is_refused(run):
    found = run_train(run, config=config(amp_dtype="bf16"))
    assert found.outcome == Outcome.INVALID
    assert "does not honour amp_dtype=bf16: its facts name micro_batch_size" in found.reason


def test_without_facts_a_program_is_taken_to_honour_dtype_and_batch(run_program):
    found = run_program(STEPS, config=config(amp_dtype="bf16", micro_batch_size=2))
    assert found.outcome == Outcome.COMPLETED
    found = run_program(STEPS, config=config(checkpoint_interval=1))
    assert "does not honour checkpoint_interval=1" in found.reason


def test_quality_on_one_device_stands_for_all(run_program):
    document = config_document(
        TrialSpec(
            workload="command:any",
            config=config(micro_batch_size=2, accumulation_steps=2),
            task=Task.QUALITY,
            num_devices=3,
            quality_samples=64,
        )
    )
    assert (document["accumulation_steps"], document["num_devices"]) == (6, 3)
    assert document["quality_samples"] == 60
    json.dumps(document)


def test_the_config_is_in_a_file_too(run_program):
    same = 'json.load(open(os.environ["AUTOTUNE_CONFIG_FILE"])) == config'
    assert run_program(f"assert {same}\n{STEPS}").outcome == Outcome.COMPLETED


def test_threads_of_the_trial_are_threads_of_the_program(run_program):
    same = 'os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "2"'
    assert run_program(f"assert {same}\n{STEPS}", num_threads=2).outcome == Outcome.COMPLETED


def test_a_program_that_goes_on_for_ever_is_ended_once_enough_is_timed(run_program):
    found = run_program("while True: time.sleep(0.01); report(step_seconds=0.01)")
    assert found.outcome == Outcome.COMPLETED and found.process_seconds < 5


def test_a_program_that_ignores_being_asked_to_end_is_killed(run_program):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    found = run_program(f"{deaf}while True: time.sleep(0.01); report(step_seconds=0.01)")
    assert found.outcome == Outcome.COMPLETED and found.process_seconds < 6


def test_nothing_of_a_program_outlives_its_trial(run_program):
    child = "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    found = run_program(child + STEPS, trial_id="command-with-a-child")
    assert found.outcome == Outcome.COMPLETED
    assert not tagged(TRIAL_ID_VARIABLE, "command-with-a-child")


@pytest.mark.parametrize("code", ["time.sleep(60)", "report(ready=True); time.sleep(60)"])
def test_a_program_without_steps_runs_out_of_time(run_program, code):
    started = time.monotonic()
    found = run_program(f"print('waiting', flush=True); {code}", deadline_seconds=2.0)
    assert found.outcome == Outcome.TIMED_OUT and time.monotonic() - started < 10
    assert found.failure.log_tail == "waiting"


def test_a_program_is_asked_before_its_deadline_kills_it(run_program, tmp_path):
    gone = tmp_path / "asked"
    code = f"signal.signal(signal.SIGTERM, lambda *_: open({str(gone)!r}, 'w'))\n"
    assert run_program(f"{code}time.sleep(60)", deadline_seconds=8).outcome == Outcome.TIMED_OUT
    assert gone.exists()


def test_too_few_steps_are_invalid_and_counted(run_program):
    found = run_program("report(step_seconds=0.1)")
    assert found.outcome == Outcome.INVALID
    assert "after reporting 1 optimizer steps; 4 are the least" in found.reason


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("file.write('hello\\n')", "line 1 of the program's report, 'hello'"),
        ("report(step_seconds=0.1); report(speed=3)", "line 2 of the program's report"),
        ("report(step_seconds=0.1, los=1)", "unknown key 'los' in a StepReport"),
        ("report(step_seconds=-1)", "step_seconds=-1"),
        ("report(step_seconds='fast')", "step_seconds='fast'"),
        ("report(facts={'unit': 'samples'})", "num_parameters"),
        ("report(memory={'activations': 1.5})", "activations=1.5"),
        ("report(memory=7)", "line 1"),
        ("file.write('7')", "line 1 of the program's report, '7': a line is a JSON object"),
    ],
)
def test_a_line_that_says_nothing_known_is_invalid_and_named(run_program, code, words):
    found = run_program(code)
    assert found.outcome == Outcome.INVALID and words in found.reason


def test_a_step_of_another_batch_is_refused(run_program):
    found = run_program("report(step_seconds=0.1, samples=32)", config=config(micro_batch_size=4))
    assert found.outcome == Outcome.INVALID
    assert "32 samples where the config makes 4" in found.reason


def test_a_loss_of_nan_diverges(run_program):
    found = run_program("report(step_seconds=0.1, loss=float('nan'))")
    assert (found.outcome, found.reason) == (Outcome.DIVERGED, "the loss is nan after 1 steps")


def test_a_quality_of_nan_diverges(run_program):
    found = run_program("report(quality=float('nan'))", task=Task.QUALITY, quality_samples=1)
    assert found.outcome == Outcome.DIVERGED, found.failure


def test_skipped_steps_at_the_start_do_not_count(run_program):
    found = run_program(f"for _ in range(5): report(step_seconds=0.01, skipped=True)\n{STEPS}")
    assert (found.outcome, found.timing.skipped_steps) == (Outcome.COMPLETED, 5)


def test_skipping_every_step_is_invalid(run_program):
    found = run_program("while True: report(step_seconds=0.01, skipped=True, loss=float('nan'))")
    assert found.outcome == Outcome.INVALID and "skipped by the gradient scaler" in found.reason


@pytest.mark.parametrize("task", [Task.DESCRIBE, Task.QUALITY])
def test_a_program_without_an_answer_is_invalid(run_program, task):
    found = run_program("print('nothing to say')", task=task)
    assert found.outcome == Outcome.INVALID and "the program ended without a line" in found.reason
    assert found.failure.log_tail == "nothing to say"


def test_a_healthy_program_that_prints_the_word_error_stays_healthy(run_program):
    found = run_program(f"print('error: out of memory, MemoryError')\n{STEPS}")
    assert found.outcome == Outcome.COMPLETED


def test_a_program_that_raises_is_invalid_with_its_last_line(run_program):
    found = run_program("print('error'); raise ValueError('no such layer')")
    assert found.outcome == Outcome.INVALID
    assert found.reason == "program ended by exit code 1: ValueError: no such layer"
    assert found.failure.log_tail.startswith("error") and "Traceback" in found.failure.log_tail


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "terminate called after throwing an instance of std::bad_alloc",
        "ResourceExhaustedError: failed to allocate memory",
        "OOM when allocating tensor with shape[8192,8192]",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_a_program_that_fails_for_memory_is_out_of_memory(run_program, line):
    found = run_program(f"print({line!r}, flush=True); os._exit(1)", memory_budget_bytes=MIB)
    assert (found.outcome, found.failure.where) == (Outcome.OUT_OF_MEMORY, Where.DEVICE)
    assert found.failure.attempted_bytes > MIB


def test_a_signal_is_a_crash(run_program):
    found = run_program("os.kill(os.getpid(), signal.SIGSEGV)")
    assert found.outcome == Outcome.CRASHED and "program ended by SIGSEGV" in found.reason


def test_a_budget_is_enforced_by_the_kernel_from_ready_on(run_program):
    code = "report(ready=True); time.sleep(0.3); kept = bytearray(200_000_000)\n" + STEPS
    found = run_program(code, memory_budget_bytes=100 * MIB)
    assert found.outcome == Outcome.OUT_OF_MEMORY
    assert found.reason == "program ended by exit code 1: MemoryError"
    assert run_program(code, memory_budget_bytes=300 * MIB).outcome == Outcome.COMPLETED


def test_what_was_there_before_ready_is_no_part_of_the_peak(run_program):
    code = "before = bytearray(80_000_000); report(ready=True); time.sleep(0.3)\n"
    found = run_program(f"{code}after = bytearray(40_000_000)\n{STEPS}")
    assert found.memory.peak_device_bytes == pytest.approx(40e6, rel=0.1)
    assert found.memory.peak_host_bytes > 80e6


def test_without_ready_the_peak_is_the_whole_program(run_program):
    found = run_program(f"kept = bytearray(40_000_000)\n{STEPS}")
    assert 40e6 < found.memory.peak_device_bytes < 80e6
    assert found.memory.peak_host_bytes == 0
    found = run_program(f"kept = bytearray(40_000_000)\n{STEPS}", memory_budget_bytes=40 * MIB)
    assert found.outcome == Outcome.OUT_OF_MEMORY and "over the budget" in found.reason


def test_a_peak_between_two_looks_is_not_missed(run_program):
    code = "report(ready=True); time.sleep(0.3); kept = bytearray(50_000_000); del kept\n"
    assert run_program(code + STEPS).memory.peak_device_bytes > 45e6


def test_processes_that_a_program_starts_count(run_program):
    child = "import time; kept = bytearray(60_000_000); time.sleep(60)"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(1)"
    found = run_program(f"report(ready=True); time.sleep(0.3)\n{start}\n{STEPS}")
    assert found.memory.peak_device_bytes > 60e6


def test_kinds_are_what_the_program_says_and_the_peak_is_measured(run_program):
    code = "report(ready=True); report(memory={'peak_device_bytes': 1, 'parameters': 7})\n"
    memory = run_program(code + STEPS).memory
    assert memory.by_kind == {"parameters": 7} and memory.peak_device_bytes != 1


def test_a_program_that_cannot_be_started_is_invalid(run, tmp_path):
    script = tmp_path / "not_executable"
    script.write_text("")
    found = run(f"command:{script}")
    assert found.outcome == Outcome.INVALID and "cannot be started" in found.reason


def test_a_program_is_no_shell(run_program, run, tmp_path):
    script = tmp_path / "words.py"
    script.write_text(START + "print(sys.argv[1:])")
    found = run(f"{PYTHON} {script} 'two words' $HOME ; true", task=Task.QUALITY)
    assert found.failure.log_tail == "['two words', '$HOME', ';', 'true']"


def test_any_language_will_do(run, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/sh\nwhile :; do sleep 0.05; "
        """echo '{"step_seconds": 0.05}' >> "$AUTOTUNE_REPORT_FILE"; done\n"""
    )
    os.chmod(script, 0o700)
    found = run(f"command:{script}", timing=TimingPolicy(min_steps=2, max_steps=3))
    assert found.outcome == Outcome.COMPLETED
