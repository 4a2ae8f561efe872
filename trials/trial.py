"""A trial under way in its own process: its spec, its device, its memory and its phase."""

from collections.abc import Callable

import torch

from trials.devices import GpuGuard, guard_gpu
from trials.kinds import memory_use
from trials.machine import host_memory_bytes
from trials.measurement import Measurement, Outcome
from trials.memory import MemoryMeter, meter_for
from trials.outcomes import Evidence, failed, from_exception
from trials.ranks import Ranks, join_ranks
from trials.references import source_file
from trials.spec import Task, Through, TrialSpec
from trials.warm_up import warm_up_process


class Trial:
    """One trial under way: its spec, its meter and the phase it is in."""

    def __init__(self, spec: TrialSpec, on_phase: Callable[[str], None]) -> None:
        """Prepare a trial; every change of phase is told to ``on_phase``."""
        self.spec = spec
        self.device = torch.device(spec.device)
        self.meter: MemoryMeter | None = None
        self.guard: GpuGuard | None = None
        self.ranks: Ranks | None = None
        self._on_phase = on_phase

    def enter(self, phase: str) -> None:
        """Go on to a phase."""
        self.phase = phase
        self._on_phase(phase)

    def take_device(self) -> None:
        """Hold the GPU for this process alone; a CPU slot owns its cores already."""
        self.enter("device")
        if self.spec.task in (Task.MEASURE, Task.QUALITY, Task.PROFILE, Task.VERIFY):
            self.hold_gpu()
        self.enter("load")

    def hold_gpu(self) -> None:
        """Keep others from the GPU, if it is one, until this process ends."""
        if self.spec.is_cuda:
            self.guard = guard_gpu(self.device.index or 0)
            self.guard.acquire()

    def join_ranks(self) -> None:
        """Join the trial's other processes; DeepSpeed asks for a group even of one."""
        spec = self.spec
        count = 1 if spec.rendezvous is None else spec.num_ranks
        is_deepspeed = spec.config.zero_stage > 0 or spec.through == Through.DEEPSPEED
        if count > 1 or is_deepspeed:
            self.ranks = join_ranks(
                spec.rank, count, self.device, spec.rendezvous, spec.deadline_seconds
            )

    def start_meter(self) -> MemoryMeter:
        """Warm the process up and count memory from here on.

        Weights that are to be quantized are first whole, on the host, where a GPU's trial has
        them too: the budget then holds from ``count_built_model`` on.
        """
        meter = meter_for(self.device)
        self.join_ranks()
        warm_up_process(self.spec.config, self.device, self.spec.nvme_folder, self.ranks)
        return self.take_baseline(meter)

    def take_baseline(self, meter: MemoryMeter) -> MemoryMeter:
        """Count memory from here on, and enforce the budget."""
        if self.guard is not None:
            self.guard.settle(meter.peak_reserved_bytes() or 0)
        budget = self.spec.memory_budget_bytes
        meter.start(None if self._quantizes_weights else budget)
        self.meter = meter
        return meter

    def count_built_model(self) -> None:
        """Leave out of the peak what building the model took beyond it, if the host built it."""
        if self.meter is not None and self._quantizes_weights:
            self.meter.restart(self.spec.memory_budget_bytes)

    @property
    def _quantizes_weights(self) -> bool:
        return self.spec.config.weight_bits < 32

    def is_out_of_memory(self, error: Exception) -> bool:
        """Tell whether the trial raised something for want of memory."""
        return self.failure(error).outcome == Outcome.OUT_OF_MEMORY

    def failure(self, error: Exception) -> Measurement:
        """Classify what the trial raised. The budget must be lifted first."""
        budget = self.spec.memory_budget_bytes or host_memory_bytes()
        evidence = Evidence(
            phase=self.phase,
            free_bytes=budget if self.meter is None else self.meter.free_bytes(),
            budget_bytes=budget,
            peak_bytes=0 if self.meter is None else self.meter.peak_bytes(),
            device_kind=self.device.type,
            foreign_bytes=self._foreign_bytes(),
            workload_file=source_file(self.spec.workload),
        )
        memory = None if self.meter is None else memory_use(self.meter, {})
        return failed(*from_exception(error, evidence), memory)

    def _foreign_bytes(self) -> int:
        reserved = None if self.meter is None else self.meter.peak_reserved_bytes()
        return 0 if self.guard is None or reserved is None else self.guard.foreign_bytes(reserved)
