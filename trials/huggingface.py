"""Workloads of ``huggingface:PATH``: one for each task that a model can be trained for."""

import hashlib
import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.blocks import find_blocks
from trials.corpus import read_corpus, read_text
from trials.errors import WorkloadError
from trials.language import IGNORED, Examples, LanguageWorkload
from trials.model_reference import ModelReference, ModelTask, parse_model
from trials.pretrained import Pretrained
from trials.samples import LEAST_TOKENS, Lines, Samples, Windows
from trials.vision import Digits, DigitsWorkload
from trials.workload import Workload

LONGEST_DEFAULT = 1024
"""Tokens per sample of a model that allows more, unless the reference says otherwise."""
FINE_TUNING_RATE = 5e-5
MASKED_SHARE = 0.15
SIDE_DEFAULT = 224
"""Pixels of an image's side, for models whose config names none, as those of convolutions."""
_READ_BYTES = 2**20
_NUM_LONGEST = 64
_CHUNK_CHARACTERS = 4096


class _LanguageModel(LanguageWorkload):
    """A language model of transformers, on a text."""

    learning_rate = 3e-4
    evaluation_windows = 32
    evaluation_batch_size = 1  # logits of a large vocabulary: no more at once than in training
    extra_tokens = 0
    """Tokens of a sample beside those that the model is given."""
    least_sequence = 1

    def __init__(self, pretrained: Pretrained, reference: ModelReference) -> None:
        """Read the text.

        Raises:
            WorkloadError: The sample is too long for the model, or for the text.
        """
        self.pretrained = pretrained
        self.reference = reference
        self.sequence = _sequence(reference, pretrained.longest, self.least_sequence)
        self.is_padded = not reference.is_packed
        self.padding_id = pretrained.padding_id
        corpus = read_corpus() if reference.text is None else read_text(reference.text)
        self.training = self._samples(corpus.training)
        self.held_out = self._samples(corpus.held_out)
        if pretrained.has_weights:
            self.learning_rate = FINE_TUNING_RATE

    def build(self) -> nn.Module:
        """See Workload."""
        return self.pretrained.build()

    def outline(self) -> nn.Module:
        """See Workload."""
        return self.pretrained.outline()

    def logits(self, model: nn.Module, given: Examples) -> Tensor:
        """See LanguageWorkload."""
        logits: Tensor = model(**given).logits
        return logits

    def identity(self) -> object:
        """See Workload."""
        text = self.reference.text
        return {
            **self.pretrained.identity(),
            "sequence": self.sequence,
            "is_packed": self.reference.is_packed,
            "text": None if text is None else hashlib.sha256(text.read_bytes()).hexdigest(),
        }

    def _samples(self, text: bytes) -> Samples:
        file, length = self.reference.text, self.sequence + self.extra_tokens
        samples: Samples
        if self.is_padded:
            samples = Lines(self.pretrained.read(_lines(text)), length)
            need = f"needs a line of {LEAST_TOKENS} tokens or more"
        else:
            read = self.pretrained.read(_chunks(text))
            ids = torch.cat(read) if read else torch.tensor([])
            samples = Windows(ids, length)
            need = f"is {len(ids)} tokens, and sequence={self.sequence} needs {length}"
        if len(samples) == 0:
            where = "Python's own sources" if file is None else f"text={str(file)!r}"
            raise WorkloadError(
                f"too short, {where}: a part of it, what is trained on or the tenth that is held "
                f"out, {need}; give more text, or a smaller sequence"
            )
        return samples


class CausalModel(_LanguageModel):
    """Next-token prediction by any model of transformers' ``AutoModelForCausalLM``."""

    extra_tokens = 1


class MaskedModel(_LanguageModel):
    """Telling hidden tokens, by any model of transformers' ``AutoModelForMaskedLM``.

    Of each sample 15 % of the tokens, one at least, are replaced by the mask; the loss is over
    them alone.
    """

    def example(self, ids: Tensor, order: random.Random) -> Examples:
        """See LanguageWorkload."""
        number = max(1, round(MASKED_SHARE * len(ids)))
        hidden = torch.tensor(order.sample(range(len(ids)), number))
        labels = torch.full_like(ids, IGNORED)
        labels[hidden] = ids[hidden]
        return {
            "input_ids": ids.index_fill(0, hidden, self.pretrained.mask_id),
            "labels": labels,
        }


class SequenceToSequenceModel(_LanguageModel):
    """Going on with a text, by any model of transformers' ``AutoModelForSeq2SeqLM``.

    The encoder reads the first half of a sample, and the decoder learns to write the second.
    """

    least_sequence = LEAST_TOKENS

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """See Workload. Of some models the two stacks are of different classes."""
        stacks: list[Any] = [model.get_encoder(), model.get_decoder()]  # type: ignore[operator]
        return [block for stack in stacks for block in find_blocks(stack)]

    def example(self, ids: Tensor, order: random.Random) -> Examples:
        """See LanguageWorkload."""
        prefix, labels = ids[: len(ids) // 2], ids[len(ids) // 2 :]
        start = torch.tensor([self.pretrained.start_id])
        return {
            "input_ids": prefix,
            "decoder_input_ids": torch.cat([start, labels[:-1]]),
            "labels": labels,
        }


class ImageModel(DigitsWorkload):
    """Telling digits, by any model of transformers' ``AutoModelForImageClassification``.

    Images are enlarged to the size and the channels that the model takes. Of a model with fewer
    classes than ten, digits share classes. Quality is the held-out loss in nats per image: what
    starts from random weights tells few digits right after so few samples.
    """

    quality_name = "held_out_loss"
    learning_rate = 3e-4
    quality_samples = 512
    evaluation_images = 128
    evaluation_batch_size = 8

    def __init__(self, pretrained: Pretrained, reference: ModelReference) -> None:
        """Read the images.

        Raises:
            WorkloadError: An option that says how to read text, or a model of one class.
        """
        if reference.text or reference.sequence or not reference.is_packed:
            raise WorkloadError(
                f"{str(reference.config_file)!r} is a model of images: text, sequence and packing "
                "are options for language models; leave them out"
            )
        super().__init__()
        self.pretrained = pretrained
        config = getattr(pretrained.config, "vision_config", pretrained.config)
        self.side = _pair(getattr(config, "image_size", None) or SIDE_DEFAULT)
        self.num_channels = int(getattr(config, "num_channels", 3))
        self.num_classes = int(pretrained.config.num_labels)
        if self.num_classes < 2:
            raise WorkloadError(
                f"{str(reference.config_file)!r} has {self.num_classes} label; a classifier "
                "needs 2 or more (num_labels)"
            )
        if pretrained.has_weights:
            self.learning_rate = FINE_TUNING_RATE

    def build(self) -> nn.Module:
        """See Workload."""
        return self.pretrained.build()

    def outline(self) -> nn.Module:
        """See Workload."""
        return self.pretrained.outline()

    def prepared(self, digits: Digits) -> tuple[Tensor, Tensor]:
        """See DigitsWorkload. Images are (batch, channels, height, width)."""
        images = functional.interpolate(digits.images[:, None], self.side, mode="bilinear")
        return images.expand(-1, self.num_channels, -1, -1), digits.labels % self.num_classes

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """See DigitsWorkload."""
        logits: Tensor = model(pixel_values=images).logits
        return logits

    def evaluate(self, model: nn.Module, device: torch.device) -> float:
        """See Workload."""
        size, total = self.evaluation_batch_size, 0.0
        for first in range(0, self.evaluation_images, size):
            images, labels = self.prepared(self.held_out.at(slice(first, first + size)))
            total += float(self.loss(model, (images.to(device), labels.to(device))))
        return total / self.evaluation_images

    def identity(self) -> object:
        """See Workload."""
        return self.pretrained.identity()


_WORKLOADS = {
    ModelTask.CAUSAL: CausalModel,
    ModelTask.MASKED: MaskedModel,
    ModelTask.SEQ2SEQ: SequenceToSequenceModel,
    ModelTask.VISION: ImageModel,
}


def load_model(place: str) -> Workload:
    """Return the workload that trains a model for its task.

    Args:
        place: ``PATH?OPTION=VALUE&...``.

    Raises:
        WorkloadError: No model that transformers can build, or nothing to train it on.
    """
    reference = parse_model(place)
    pretrained = Pretrained(reference)
    return _WORKLOADS[pretrained.task](pretrained, reference)


def _sequence(reference: ModelReference, longest: int | None, least: int) -> int:
    """Return the tokens of a sample at most."""
    asked = reference.sequence
    if asked is None:
        return min(LONGEST_DEFAULT, longest or LONGEST_DEFAULT)
    if asked < least:
        raise WorkloadError(f"sequence={asked}: an encoder and a decoder need {least} or more")
    if longest is not None and asked > longest:
        raise WorkloadError(
            f"sequence={asked}: the model's longest is {longest} "
            f"(max_position_embeddings in {str(reference.config_file)!r})"
        )
    return asked


def _lines(text: bytes) -> list[str]:
    """Return the lines of a text's beginning, and its longest ones, in their order."""
    lines = [line for line in text.splitlines() if line.strip()]
    ends = accumulate(len(line) + 1 for line in lines)
    first = sum(end <= _READ_BYTES for end in ends)
    later = range(first, len(lines))
    longest = sorted(later, key=lambda place: -len(lines[place]))[:_NUM_LONGEST]
    places = [*range(first), *sorted(longest)]
    return [lines[place].decode(errors="replace") for place in places]


def _chunks(text: bytes) -> list[str]:
    """Return a text's beginning in parts: tokenizers take long for a long one."""
    content = text[:_READ_BYTES].decode(errors="replace")
    starts = range(0, len(content), _CHUNK_CHARACTERS)
    return [content[start : start + _CHUNK_CHARACTERS] for start in starts]


def _pair(side: Any) -> list[int]:
    """Return height and width of what a config gives as a number or as both."""
    return [int(number) for number in side] if isinstance(side, list | tuple) else [int(side)] * 2
