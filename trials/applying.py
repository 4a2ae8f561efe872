"""Put a config onto a user's own model, optimizer and loop: with what a trial trains by."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from search_spaces import InvalidConfigError, OffloadTarget, Sharding, Switch, TrainingConfig
from trials.blocks import find_blocks
from trials.checkpointing import checkpoint_blocks
from trials.engines import BackwardEngine, PlainEngine, set_matmul_precision

ConfigSource = TrainingConfig | Mapping[str, object] | str | Path
"""A config, its knobs, or a document or JSON file that has them under ``config``."""


class Applied:
    """A model in training under a config, within a loop of the user's own.

    A loop over micro-batches calls ``forward`` around the model, then ``backward``, and ``step``
    whenever ``backward`` says that the accumulation window is full::

        applied = autotune.apply("best.json", model, learning_rate=1e-3)
        for batch in micro_batches:
            with applied.forward():
                loss = loss_of(model, batch)
            if applied.backward(loss):
                applied.step()

    Attributes:
        config: What was applied.
        num_checkpointed: Blocks that recompute their activations in the backward pass.
    """

    def __init__(
        self, config: TrainingConfig, engine: PlainEngine | BackwardEngine, num_checkpointed: int
    ) -> None:
        """Take steps by an engine; ``apply`` makes one."""
        self.config, self.num_checkpointed = config, num_checkpointed
        self._engine = engine
        self._num_waiting = 0

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The one that the config asks for, as for a learning rate scheduler.

        Raises:
            InvalidConfigError: There is one per parameter, stepped within the backward pass.
        """
        return self._plain("one optimizer to show").optimizer

    @property
    def optimizer_steps(self) -> int:
        """Steps that the optimizer really took."""
        return self._engine.optimizer_steps

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Compute a micro-batch's forward pass and loss as the config says."""
        with self._engine.forward(is_last=self._is_last):
            yield

    def backward(self, loss: Tensor, *, share: float | None = None) -> bool:
        """Add a micro-batch's gradients; returns whether ``step`` is due.

        Args:
            loss: Of the micro-batch, a scalar: a mean over what is trained, unless there is a
                share that says otherwise.
            share: Of the loss in the window's; None for one part in ``accumulation_steps``. Where
                micro-batches hold different numbers of tokens, give the loss as a sum and, as
                share, 1 / the tokens of the whole window: so a trial does.
        """
        is_last = self._is_last
        parts = self.config.accumulation_steps
        self._engine.backward(loss / parts if share is None else loss * share, is_last=is_last)
        self._num_waiting = 0 if is_last else self._num_waiting + 1
        return is_last

    def clip(self, max_norm: float) -> Tensor:
        """Clip the gradients by their norm before ``step``; returns the norm that they had.

        Raises:
            InvalidConfigError: The backward pass has used them up already.
        """
        self._plain("a gradient to clip").unscale()
        return nn.utils.clip_grad_norm_(self._engine.model.parameters(), max_norm)

    def step(self) -> bool:
        """Apply the gradients and clear them; returns whether the optimizer stepped.

        Under fp16 a step whose gradients overflow is skipped, as in a trial.
        """
        return not self._engine.step()

    @property
    def _is_last(self) -> bool:
        return self._num_waiting == self.config.accumulation_steps - 1

    def _plain(self, wanted: str) -> PlainEngine:
        if isinstance(self._engine, PlainEngine):
            return self._engine
        raise InvalidConfigError(
            f"optimizer_in_backward=on has one optimizer per parameter and steps it at once, so "
            f"that there is not {wanted}; apply another trial's config"
        )


def apply(
    config: ConfigSource,
    model: nn.Module,
    *,
    learning_rate: float,
    blocks: Sequence[nn.Module] | None = None,
) -> Applied:
    """Put a config onto a model: precision, checkpointing, optimizer, accumulation, offload.

    The micro-batch is the loop's own: ``config.micro_batch_size`` samples for each ``forward``.

    Args:
        config: A config; the document of ``autotune best --output json``; or a JSON file that
            holds it, or that ``autotune export --format json`` wrote.
        model: On its device, in fp32. Changed in place; what is frozen stays so.
        learning_rate: As for AdamW; that of SGD and Lion is derived from it, as in a trial.
        blocks: That checkpointing may recompute, in order of the forward pass; None to find them
            as a trial does.

    Raises:
        InvalidConfigError: No config, or one with a knob that cannot be applied to a model here;
            the message says what to use instead.
        WorkloadError: Checkpointing of a model without blocks.
        TrialSetupError: A package that the config needs is not there.
    """
    config = read_source(config)
    _require_applicable(config)
    device = next(model.parameters()).device
    set_matmul_precision(config)
    found = find_blocks(model) if blocks is None else blocks
    number = checkpoint_blocks(found, config.checkpoint_interval, config.checkpoint_deepest)
    model.train()
    kind = BackwardEngine if config.optimizer_in_backward == Switch.ON else PlainEngine
    return Applied(config, kind(model, config, device, learning_rate), number)


def read_source(source: ConfigSource) -> TrainingConfig:
    """Return a config from where a user has it.

    Raises:
        InvalidConfigError: There is none; the message says what there is.
    """
    if isinstance(source, TrainingConfig):
        return source
    if isinstance(source, Mapping):
        knobs = source.get("config", source)
        if not isinstance(knobs, Mapping):
            raise InvalidConfigError(f"config={knobs!r}: must be knobs and their values")
        return TrainingConfig.from_mapping(knobs)
    path = Path(source)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}; write it with "
            "`autotune export STUDY --format json --to FILE`"
        ) from error
    except ValueError as error:
        raise InvalidConfigError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(document, dict) or "config" not in document:
        raise InvalidConfigError(
            f"{str(path)!r} has no 'config'; write one with `autotune export STUDY --format json`"
        )
    return read_source(document)


def _require_applicable(config: TrainingConfig) -> None:
    """Refuse what asks for another program, or for another model than the user's."""
    is_fsdp = config.zero_stage > 0 and config.sharding == Sharding.FSDP
    refusals = {
        f"zero_stage={config.zero_stage} with sharding=fsdp shards over processes; call "
        "torch.distributed.fsdp.fully_shard in your script, with the values of "
        "`autotune export --format env`": is_fsdp,
        f"zero_stage={config.zero_stage} is DeepSpeed's; use `autotune export --format "
        "deepspeed` with deepspeed.initialize": config.is_zero,
        f"offload_target={config.offload_target} is DeepSpeed's; use `autotune export --format "
        "deepspeed`": config.offload_target == OffloadTarget.NVME,
        f"lora_rank={config.lora_rank} with weight_bits={config.weight_bits} makes another model "
        "of yours; use peft's LoraConfig with the values of `autotune export --format env`": (
            config.lora_rank > 0 or config.weight_bits < 32
        ),
        f"optimizer_in_backward=on uses gradients up at once, and accumulation_steps="
        f"{config.accumulation_steps} adds them up; no trial runs it": (
            config.optimizer_in_backward == Switch.ON and config.accumulation_steps > 1
        ),
    }
    for text, is_so in refusals.items():
        if is_so:
            raise InvalidConfigError(text)
