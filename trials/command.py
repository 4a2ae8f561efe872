"""Trials of ``command:PROGRAM ARGS...``: any training program, in any framework.

The program is run without a shell, its output goes to the trial's log. It finds its config in
the JSON file that ``AUTOTUNE_CONFIG_FILE`` names, and the same text in ``AUTOTUNE_CONFIG``: every
knob by its name (``amp_dtype``, ``micro_batch_size``, ``accumulation_steps``, ...), and

    task              describe, measure or quality
    device            cpu or cuda:INDEX
    num_threads       compute threads on CPU, also set for OpenMP, OpenBLAS and MKL
    seed              of weights and data order
    num_devices       of the real job; this is one of them, but under quality it stands for all,
                      and accumulation_steps counts their micro-batches
    quality_samples   to train under quality, before evaluating
    warm_up_steps, min_steps, max_steps
                      optimizer steps that are not timed, and those that are; under measure
    memory_budget_bytes
                      device memory that it may use; null for no limit

It writes one JSON object a line, flushed, to the pipe that ``AUTOTUNE_REPORT_FILE`` names:

    {"facts": {...}}  what it trains, see ``trials.reports.FactsReport``. Asked for under
                      describe, welcome first under every task: its ``knobs`` name what the
                      program honours; amp_dtype, micro_batch_size and accumulation_steps if
                      left out. Another knob off its default makes the config invalid.
    {"ready": true}   everything is imported and nothing built; optional, see below
    {"step_seconds": 0.12, "samples": 32, "units": 4096, "loss": 2.3, "skipped": false,
     "data_wait_seconds": 0.01}
                      after every optimizer step; all but the first key may be left out
    {"memory": {"peak_device_bytes": 1, "parameters": 1}}
                      what it knows itself, at any time; the last one counts
    {"quality": 0.93} at the end of quality

A step has as many samples as the config makes. The program may go on for ever: it is ended
(SIGTERM, a second later SIGKILL) once enough is known, or just before the trial's deadline.

On CPU, peak memory is the resident set of the whole program: all its processes, interpreters
included, or what came on top since it said that it was ready. The budget holds from the ready
line on, or without one from the first step on. On CUDA it is the peak that the program reports,
or what the driver says it holds, and is compared with the budget at the end.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from trials.command_line import command_words
from trials.errors import WorkloadError
from trials.listener import Listener, trained_config, trained_samples
from trials.machine import host_free_bytes, host_memory_bytes, kernel_kills
from trials.measurement import Failure, Measurement, MemoryUse, Outcome
from trials.outcomes import (
    DeviceMemoryError,
    Evidence,
    ExitEvidence,
    failed,
    from_exception,
    from_program,
    timed_out,
)
from trials.program import Program
from trials.program_memory import program_memory
from trials.spec import Task, TrialSpec

_LOOK_SECONDS = 0.1
_MARGIN_SECONDS = 2.0
_MARGIN_SHARE = 0.2
_DEVICE_PEAK = "peak_device_bytes"


def run_command(spec: TrialSpec, on_phase: Callable[[str], None]) -> Measurement:
    """Do a spec's task with a program of the user's; its failures are outcomes.

    Args:
        spec: Of ``measure``, ``quality`` or ``describe``.
        on_phase: Told each phase beyond the first, ``load``.
    """
    try:
        program = Program(command_words(spec.workload), config_document(spec))
    except WorkloadError as error:
        return failed(Outcome.INVALID, Failure(reason=str(error), phase="load"))
    with program:
        trial = _CommandTrial(spec, program, on_phase)
        try:
            return trial.run()
        except (WorkloadError, ArithmeticError, MemoryError) as error:
            outcome, failure = from_exception(error, trial.evidence())
            tail = program.output_tail()
            return failed(outcome, replace(failure, log_tail=tail), trial.memory_use())


def config_document(spec: TrialSpec) -> dict[str, object]:
    """Return what a program is told: see the module."""
    policy = spec.timing
    return {
        **trained_config(spec).as_dict(),
        "task": str(spec.task),
        "device": spec.device,
        "num_threads": spec.num_threads,
        "seed": spec.seed,
        "num_devices": spec.num_devices,
        "quality_samples": trained_samples(spec),
        "warm_up_steps": policy.warm_up_steps,
        "min_steps": policy.min_steps,
        "max_steps": policy.max_steps,
        "memory_budget_bytes": spec.memory_budget_bytes,
    }


class _CommandTrial:
    """A program, what is heard of it, and its memory."""

    def __init__(self, spec: TrialSpec, program: Program, on_phase: Callable[[str], None]) -> None:
        self._spec = spec
        self._program = program
        self._on_phase = on_phase
        self._memory = program_memory(program.pid, spec.device)
        self._listener = Listener(spec, self._begin)
        self._kills_before = kernel_kills()
        margin = min(_MARGIN_SECONDS, _MARGIN_SHARE * spec.deadline_seconds)
        self._until = time.monotonic() + spec.deadline_seconds - margin

    def run(self) -> Measurement:
        """Listen until enough is known, the program ended, or its time is up."""
        while not self._listener.is_done():
            exit_code = self._program.exit_code
            self._listen(has_ended=exit_code is not None)
            if exit_code is not None:
                return self._ended(exit_code)
            if time.monotonic() > self._until:
                return self._out_of_time()
        return self._found()

    def evidence(self) -> Evidence:
        """Return what is known when the trial breaks off."""
        budget = self._spec.memory_budget_bytes or host_memory_bytes()
        return Evidence(
            phase=self._listener.phase,
            free_bytes=budget - self._memory.peak_bytes,
            budget_bytes=budget,
            peak_bytes=self._peak_bytes(),
            device_kind=self._spec.device_kind,
        )

    def memory_use(self) -> MemoryUse | None:
        """Return the memory so far; None for a task that does not ask for it."""
        if self._spec.task != Task.MEASURE:
            return None
        kinds = {kind: n for kind, n in self._listener.memory.items() if kind != _DEVICE_PEAK}
        return MemoryUse(
            peak_device_bytes=self._peak_bytes(),
            peak_host_bytes=self._memory.baseline_bytes,
            by_kind=kinds,
        )

    def _listen(self, *, has_ended: bool) -> None:
        lines = self._program.lines(0.0 if has_ended else _LOOK_SECONDS)
        phase = self._listener.phase
        for line in [*lines, *(self._program.last_lines() if has_ended else ())]:
            self._listener.take(line)
        if self._listener.phase != phase:
            self._on_phase(self._listener.phase)
        self._memory.look()
        self._require_within_budget()

    def _begin(self, is_ready: bool) -> None:
        self._memory.begin(self._spec.memory_budget_bytes, is_ready=is_ready)

    def _ended(self, exit_code: int) -> Measurement:
        if exit_code == 0 or self._listener.is_done():
            return self._found()
        kills, before = kernel_kills(), self._kills_before
        exited = ExitEvidence(
            exit_code=exit_code,
            phase=self._listener.phase,
            host_free_bytes=host_free_bytes(),
            kernel_kills=None if kills is None or before is None else kills - before,
            log_tail=self._program.output_tail(),
            process="program",
            device_kind=self._spec.device_kind,
        )
        return failed(*from_program(exited, self.evidence()), self.memory_use())

    def _out_of_time(self) -> Measurement:
        tail = self._program.output_tail()
        found = timed_out(self._listener.phase, self._spec.deadline_seconds, tail)
        return replace(found, memory=self.memory_use())

    def _found(self) -> Measurement:
        if self._spec.task == Task.DESCRIBE:
            return Measurement(outcome=Outcome.COMPLETED, facts=self._listener.facts())
        if self._spec.task == Task.QUALITY:
            return Measurement(outcome=Outcome.COMPLETED, quality=self._listener.quality())
        timing = self._listener.timing()
        self._require_within_budget(is_end=True)
        return Measurement(outcome=Outcome.COMPLETED, timing=timing, memory=self.memory_use())

    def _require_within_budget(self, *, is_end: bool = False) -> None:
        budget = self._spec.memory_budget_bytes
        is_counted = self._listener.phase != "load" and (is_end or not self._spec.is_cuda)
        if budget is not None and is_counted and self._peak_bytes() > budget:
            raise DeviceMemoryError(
                f"the peak of {self._peak_bytes()} bytes is over the budget of {budget} bytes"
            )

    def _peak_bytes(self) -> int:
        reported = self._listener.memory.get(_DEVICE_PEAK) if self._spec.is_cuda else None
        return self._memory.peak_bytes if reported is None else reported
