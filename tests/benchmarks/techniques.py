"""What each memory technique takes and costs, alone and stacked, on one real model.

``python -m tests.benchmarks.techniques`` measures byte-gpt:350m (352 M parameters, sequence 1024)
on the first GPU; ``--device cpu --workload byte-gpt:1m`` checks the same on a CPU. Needs torch;
what else is missing is listed with what cannot be tried without it. Every number is from trial
processes of this run, technique by technique in turns, so that a drift of the machine meets all.
"""

import argparse
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from search_spaces import TrainingConfig, refusal
from tests.benchmarks.technique_list import PLAIN, Technique, techniques
from tests.benchmarks.technique_report import FORMATS, Report, Row, Spread
from trials.environment import Environment
from trials.host import TrialHost
from trials.measurement import Measurement, Outcome, WorkloadFacts
from trials.spec import Task, TimingPolicy, TrialSpec

TIMING = TimingPolicy(min_steps=5, max_seconds=5.0)


@dataclass(slots=True)
class Tried:
    """A technique, and what its trials found.

    Attributes:
        technique: Any.
        config: Its knobs, with the batch.
        refusal: Why it is not tried; None where it is.
        found: Its measurements, a trial each.
        loss: Of the held-out data after training; None where it has not come so far.
    """

    technique: Technique
    config: TrainingConfig
    refusal: str | None
    found: list[Measurement] = field(default_factory=list)
    loss: float | None = None

    @property
    def failure(self) -> str:
        """Why it has no numbers, in words; empty where it has, or may yet."""
        if self.refusal is not None:
            return self.refusal
        failed = next((one for one in self.found if one.outcome != Outcome.COMPLETED), None)
        if failed is None:
            return ""
        return f"{str(failed.outcome).replace('_', ' ')}: {failed.reason.splitlines()[0]}"

    def row(self) -> Row:
        """Return what to show."""
        whole = [] if self.failure else self.found
        memories = [one.memory for one in whole if one.memory is not None]
        reserved = [m.peak_reserved_bytes for m in memories if m.peak_reserved_bytes is not None]
        steps = [one.timing.mean_seconds for one in whole if one.timing is not None]
        return Row(
            name=self.technique.name,
            is_stacked=self.technique.is_stacked,
            config=self.config.as_dict(),
            is_tried=self.refusal is None,
            reason=self.failure,
            peak_allocated_bytes=Spread.of([m.peak_device_bytes for m in memories]),
            peak_reserved_bytes=Spread.of(reserved),
            step_seconds=Spread.of(steps),
            loss=self.loss,
        )


class Bench:
    """Runs trials of one workload on one device."""

    def __init__(self, host: TrialHost, wanted: argparse.Namespace) -> None:
        """Find out what the device and the workload are.

        Raises:
            SystemExit: There is no such device, or no such workload.
        """
        self._host = host
        self._spec = TrialSpec(
            workload=wanted.workload,
            device=wanted.device,
            num_threads=wanted.threads,
            num_devices=wanted.ranks,
            num_ranks=wanted.ranks,
            nvme_path=wanted.nvme_path,
            deadline_seconds=wanted.deadline,
            timing=TIMING,
            quality_samples=wanted.loss_samples,
        )
        environment = self._run(Task.ENVIRONMENT).environment
        facts = self._run(Task.DESCRIBE).facts
        assert environment is not None and facts is not None
        self.environment: Environment = environment
        self.facts: WorkloadFacts = facts
        self._batch = {
            "micro_batch_size": wanted.micro_batch,
            "accumulation_steps": wanted.accumulation,
        }

    def prepared(self, technique: Technique) -> Tried:
        """Return a technique with its config, refused or to be tried."""
        config = TrainingConfig().with_knobs({**self._batch, **technique.knobs})
        on = self.facts.rules_facts(self.environment, self._spec.num_ranks)
        why = refusal(config, replace(on, num_devices=self._spec.num_ranks))
        return Tried(technique=technique, config=config, refusal=why)

    def measure(self, tried: Tried) -> None:
        """Run one more trial of a technique, unless one has failed."""
        if not tried.failure:
            tried.found.append(self._trial(tried, Task.MEASURE))
            _say(f"{tried.technique.name}: {tried.failure or tried.row().brief()}")

    def train(self, tried: Tried) -> None:
        """Train a technique for a while, and read its loss."""
        if tried.failure:
            return
        found = self._trial(tried, Task.QUALITY)
        tried.loss = None if found.quality is None else found.quality.value
        _say(f"{tried.technique.name}: {found.reason or f'loss {tried.loss:.4f}'}")

    def _trial(self, tried: Tried, task: Task) -> Measurement:
        trial_id = uuid.uuid4().hex
        return self._host.run(
            replace(self._spec, config=tried.config, task=task, trial_id=trial_id)
        )

    def _run(self, task: Task) -> Measurement:
        found = self._host.run(replace(self._spec, task=task, trial_id=uuid.uuid4().hex))
        if found.outcome != Outcome.COMPLETED:
            raise SystemExit(f"{self._spec.workload} on {self._spec.device}: {found.reason}")
        return found


def run(wanted: argparse.Namespace) -> Report:
    """Measure every technique that was asked for."""
    with ExitStack() as stack:
        host = TrialHost()
        stack.callback(host.close)
        if wanted.nvme_path is None:
            folder = tempfile.TemporaryDirectory(prefix="techniques-", dir=".")
            wanted.nvme_path = stack.enter_context(folder)
        bench = Bench(host, wanted)
        listed = techniques(bench.facts.num_blocks)
        chosen = [t for t in listed if _is_wanted(t, wanted.only)]
        tried = [bench.prepared(technique) for technique in chosen]
        for _ in range(wanted.trials_per_technique):
            for one in tried:
                bench.measure(one)
        for one in tried:
            bench.train(one)
    return Report(
        date=datetime.now(UTC).date().isoformat(),
        workload=wanted.workload,
        num_parameters=bench.facts.num_parameters,
        micro_batch_size=wanted.micro_batch,
        accumulation_steps=wanted.accumulation,
        num_ranks=wanted.ranks,
        loss_name=bench.facts.quality_name,
        loss_samples=wanted.loss_samples,
        environment=bench.environment,
        rows=tuple(one.row() for one in tried),
    )


def _is_wanted(technique: Technique, only: Sequence[str]) -> bool:
    return not only or technique.name == PLAIN or technique.name in only


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.techniques")
    parser.add_argument("--workload", default="byte-gpt:350m")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--ranks", type=int, default=1, help="devices that train together")
    parser.add_argument("--threads", type=int, default=1, help="of a process on a CPU")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--trials-per-technique", type=int, default=3)
    parser.add_argument("--loss-samples", type=int, default=64, help="trained before the loss")
    parser.add_argument("--nvme-path", help="folder on a local disk; one made here if left out")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds of a trial")
    parser.add_argument("--only", action="append", default=[], help="a technique; may be repeated")
    parser.add_argument("--output", choices=tuple(FORMATS), default="table")
    return parser


def main() -> None:
    """Measure, and print the report."""
    wanted = _arguments().parse_args()
    print(FORMATS[wanted.output](run(wanted)))


if __name__ == "__main__":
    main()
