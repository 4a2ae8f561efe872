"""What a study tries: its space, less what the device or the workload has no use for. Pure."""

from collections import Counter
from dataclasses import replace

from autotune.events import StudyBegan
from autotune.records import StudyRecord
from search_spaces import InvalidConfigError, SearchSpace, TrainingConfig
from trials.command_line import is_command
from trials.errors import WorkloadError


def within_blocks(record: StudyRecord) -> StudyRecord:
    """Return a study without checkpointing of more blocks than there are.

    Up to the number of blocks each interval recomputes others; from there on the first alone.

    Raises:
        InvalidConfigError: Nothing else is listed for a knob.
    """
    num_blocks, space = record.facts.num_blocks, record.spec.space
    if num_blocks == 0:
        return record
    values = []
    for knob, listed in space.values:
        is_of_blocks = knob in ("checkpoint_interval", "checkpoint_deepest")
        kept = tuple(v for v in listed if not is_of_blocks or int(v) <= num_blocks)
        if not kept:
            raise InvalidConfigError(
                f"{knob}={listed[0]}: {record.spec.workload} has {num_blocks} blocks; give at "
                f"most {num_blocks}"
            )
        values.append((knob, kept))
    spec = replace(record.spec, space=replace(space, values=tuple(values)))
    return replace(record, spec=spec)


def configs_of(record: StudyRecord) -> tuple[TrainingConfig, ...]:
    """Return every config that a study may try, its baseline among them.

    Raises:
        WorkloadError: The space checkpoints blocks, and the workload has none.
        InvalidConfigError: The baseline cannot be tried; the message says why, and what to do.
        EmptySpaceError: Nothing can.
    """
    configs = record.spec.space.configs(record.device_facts)
    is_program = is_command(record.spec.workload)
    needs_blocks = any(config.checkpoint_interval for config in configs)
    if needs_blocks and record.facts.num_blocks == 0:
        raise WorkloadError(
            f"{record.spec.workload} names no blocks, and the space checkpoints them; "
            f"{'' if is_program else 'return them from blocks(), or '}"
            "hold --set checkpoint_interval=0"
        )
    baseline = record.spec.baseline
    if baseline is not None and baseline not in configs:
        reason = _baseline_trouble(baseline, record)
        raise InvalidConfigError(f"the baseline ({baseline}) cannot be tried here: {reason}")
    return configs


def _baseline_trouble(baseline: TrainingConfig, record: StudyRecord) -> str:
    """Return why a baseline is no config of a study's space, and what to do."""
    space = record.spec.space
    batch = baseline.effective_batch_size(space.num_devices)
    if space.global_batch_size not in (None, batch):
        return (
            f"it makes a global batch of {batch}, and the study's is {space.global_batch_size}; "
            f"give --global-batch {batch}, or a baseline of {space.global_batch_size}"
        )
    point = baseline.as_dict()
    num_blocks = record.facts.num_blocks
    if baseline.checkpoint_interval > num_blocks:
        return (
            f"checkpoint_interval={baseline.checkpoint_interval} is above the workload's "
            f"{num_blocks} blocks; {num_blocks} recomputes the same"
        )
    pinned = [f"{knob}={listed[0]}" for knob, listed in space.values if point[knob] not in listed]
    if pinned:
        return f"it differs from --set {' --set '.join(pinned)}; leave that out, or the baseline"
    return space.refusal(baseline, record.device_facts) or "it is no point of the space"


def study_began(record: StudyRecord, num_slots: int, asked: SearchSpace) -> StudyBegan:
    """Return that a study begins, and what of the space that was asked for is not tried.

    Args:
        record: The study.
        num_slots: Trials at once.
        asked: The space before ``within_blocks``.
    """
    facts = record.device_facts
    configs = record.spec.space.configs(facts)
    exclusions = Counter(e.reason for e in record.spec.space.exclusions(facts))
    num_beyond = len(asked.configs(facts)) - len(configs)
    if num_beyond:
        num_blocks = record.facts.num_blocks
        exclusions[
            f"checkpointing of more than the workload's {num_blocks} blocks is the same as of "
            f"{num_blocks}"
        ] = num_beyond
    return StudyBegan(
        study=record,
        num_configs=len(configs),
        exclusions=dict(exclusions),
        num_slots=num_slots,
    )
