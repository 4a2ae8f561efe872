"""What a model's forward and backward pass take, as functions of the micro-batch. No torch.

A pass is cut into stretches: each block is one, and so is what lies between blocks. Bytes are
those of the tensors themselves, parameters and gradients aside unless said otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A quantity that is linear in the micro-batch.

    Attributes:
        fixed: Whatever the micro-batch.
        per_sample: More for each sample.
    """

    fixed: float
    per_sample: float

    def at(self, micro_batch_size: int) -> float:
        """Return the quantity at a micro-batch size."""
        return self.fixed + self.per_sample * micro_batch_size

    def less(self, amount: float) -> "Line":
        """Return the line, lower by an amount."""
        return Line(fixed=self.fixed - amount, per_sample=self.per_sample)

    @classmethod
    def through(cls, sizes: tuple[int, int], values: tuple[float, float]) -> "Line":
        """Return the line through what was found at two micro-batch sizes."""
        slope = (values[1] - values[0]) / (sizes[1] - sizes[0])
        return cls(fixed=values[0] - slope * sizes[0], per_sample=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The largest of several lines: what is alive at each moment of a stretch."""

    lines: tuple[Line, ...]

    def at(self, micro_batch_size: int) -> float:
        """Return the peak at a micro-batch size; 0 for a stretch in which nothing happens."""
        return max((line.at(micro_batch_size) for line in self.lines), default=0.0)

    def less(self, amount: float) -> "Peak":
        """Return the peak, lower by an amount at each moment."""
        return Peak(lines=tuple(line.less(amount) for line in self.lines))

    @classmethod
    def over(cls, lines: Iterable[Line]) -> "Peak":
        """Return the peak over moments, keeping those that are highest at some size."""
        moments = list(lines)
        if not moments:
            return cls(lines=())
        sizes = [2**power for power in range(_LARGEST_POWER)]
        highest = (max(moments, key=lambda line: line.at(size)) for size in sizes)
        return cls(lines=tuple(dict.fromkeys(highest)))


_LARGEST_POWER = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchMemory:
    """Bytes of a stretch of the forward pass and of its backward pass.

    Attributes:
        growth: What is alive after its forward pass and was not before.
        forward_peak: The most during its forward pass, over what was alive before.
        held: Of what it made, what waits for the backward pass once the forward pass is over;
            without autocast's copies of weights that nothing but its cache holds.
        backward_peak: The most during its backward pass, over what this stretch and those before
            it hold, without the gradients of parameters that are complete.
        backward_peak_with_gradients: The same with those that this stretch completes.
    """

    growth: Line
    forward_peak: Peak
    held: Line
    backward_peak: Peak
    backward_peak_with_gradients: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a stretch computes.

    Attributes:
        flops: Of matrix products, convolutions and attention, counted by torch.
        moved_bytes: Read and written by all operators.
        operators: Their number.
    """

    flops: Line
    moved_bytes: Line
    operators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A block's call, or what lies between two.

    Attributes:
        block: Index of the block; None for what lies between.
        kept: Its memory where its activations are kept.
        recomputed: Its memory where the backward pass recomputes them; None between blocks.
        gradient_bytes: Of the parameters whose gradients its backward pass completes.
        forward: What its forward pass computes.
        backward: What its backward pass computes, without recomputing.
    """

    block: int | None
    kept: StretchMemory
    recomputed: StretchMemory | None = None
    gradient_bytes: int
    forward: Work
    backward: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTrace:
    """A model under one way to compute: what of a config changes its graph, blocks aside.

    Attributes:
        is_low_precision: Whether autocast computes in 16 bits.
        lora_rank: Of its adapters; 0 for none.
        parameter_bytes: Of all parameters and buffers, as the model is built.
        trained: Elements of a trained tensor, and how many tensors have so many.
        adapted: Elements and number of the frozen weights that may be quantized.
        stretches: In order of the forward pass.
        weight_bytes: Of an element of a trained weight; of the widest where they differ.
    """

    is_low_precision: bool
    lora_rank: int
    parameter_bytes: int
    trained: tuple[tuple[int, int], ...]
    adapted: tuple[tuple[int, int], ...]
    stretches: tuple[Stretch, ...]
    weight_bytes: int = 4

    @property
    def num_trained(self) -> int:
        """Trained parameters."""
        return sum(size * count for size, count in self.trained)

    @property
    def largest_trained(self) -> int:
        """Elements of the largest trained tensor."""
        return max((size for size, _ in self.trained), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTrace:
    """A workload traced without memory.

    Attributes:
        graphs: One for each way to compute that was asked for.
        host_bytes: Resident memory of the process before the model: interpreter and libraries.
        seconds: That the traces took.
    """

    graphs: tuple[GraphTrace, ...]
    host_bytes: int
    seconds: float

    def graph(self, *, is_low_precision: bool, lora_rank: int) -> GraphTrace:
        """Return the graph of a way to compute; it must have been asked for."""
        return next(
            graph
            for graph in self.graphs
            if (graph.is_low_precision, graph.lora_rank) == (is_low_precision, lora_rank)
        )
