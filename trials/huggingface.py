"""A causal language model as transformers builds it from a ``config.json`` on this machine.

Nothing is ever downloaded, and no code beside a config is run. The weights are random, unless
the config's folder holds some. The text is byte-gpt's, read by the folder's tokenizer if it has
one and byte by byte otherwise.
"""

import copy
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read at the first import
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a CPU trial has the threads it was given

import huggingface_hub.constants
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
)

from trials.corpus import NUM_BYTES, Corpus, read_corpus
from trials.errors import WorkloadError
from trials.language import LanguageWorkload
from trials.references import ModelReference, parse_model

huggingface_hub.constants.HF_HUB_OFFLINE = True  # where something imported it before
LONGEST_DEFAULT = 1024
"""Tokens per sample of a model that allows more, unless the reference says otherwise."""
FINE_TUNING_RATE = 5e-5
_REFUSALS = (
    *(ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError),
    *(TypeError, ValueError, StrictDataclassError),
)
_TOKENIZED_BYTES = 2**20
_CHUNK_CHARACTERS = 4096
_END_BYTES = 2**20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SHARDS = ("*.safetensors", "pytorch_model*.bin", "*.index.json", "merges.txt", "vocab.json")


class HuggingFace(LanguageWorkload):
    """Next-token prediction by any model of transformers' ``AutoModelForCausalLM``."""

    learning_rate = 3e-4
    evaluation_windows = 32
    evaluation_batch_size = 1  # logits of a large vocabulary: no more at once than in training

    def __init__(self, place: str) -> None:
        """Read the config and the text, and build the model without memory.

        That shows what it cannot be built from, and imports what building imports.

        Args:
            place: ``PATH?sequence=N``.

        Raises:
            WorkloadError: No causal language model that transformers can build.
        """
        self.reference = parse_model(place)
        self.config = _read_config(self.reference.config_file)
        file = self.reference.config_file
        with torch.device("meta"), _refusing(file, "builds no model from"):
            self._from_config()
        self.sequence = _sequence(self.reference, self.config)
        self.corpus = _as_tokens(read_corpus(), self.reference, self.config)
        shortest = min(len(self.corpus.training), len(self.corpus.held_out))
        if self.sequence + 1 >= shortest:
            raise WorkloadError(
                f"sequence={self.sequence} is longer than the text there is, {shortest} tokens"
            )
        if self._has_weights():
            self.learning_rate = FINE_TUNING_RATE

    def build(self) -> nn.Module:
        """See Workload."""
        folder = self.reference.folder
        if folder is None or not self._has_weights():
            return self._from_config()
        model: nn.Module = AutoModelForCausalLM.from_pretrained(
            folder,
            config=copy.deepcopy(self.config),
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
        )
        return model

    def logits(self, model: nn.Module, ids: Tensor) -> Tensor:
        """See LanguageWorkload."""
        logits: Tensor = model(input_ids=ids).logits
        return logits

    def identity(self) -> object:
        """See Workload."""
        folder = self.reference.folder
        patterns = [*_TOKENIZERS, *_SHARDS]
        beside = [] if folder is None else [p for name in patterns for p in folder.glob(name)]
        return {
            "config": _digest(self.reference.config_file),
            "files": {path.name: _digest(path) for path in sorted(beside) if path.is_file()},
            "sequence": self.sequence,
            "transformers": transformers.__version__,
        }

    def _has_weights(self) -> bool:
        return _holds(self.reference.folder, _WEIGHTS)

    def _from_config(self) -> nn.Module:
        model: nn.Module = AutoModelForCausalLM.from_config(
            copy.deepcopy(self.config), dtype=torch.float32, trust_remote_code=False
        )
        return model


@contextmanager
def _refusing(file: Path, task: str) -> Iterator[None]:
    """Say of whatever transformers raises that it is about the config."""
    try:
        yield
    except _REFUSALS as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise WorkloadError(
            f"transformers {transformers.__version__} {task} {str(file)!r}: {cause}"
        ) from error


def _read_config(file: Path) -> PreTrainedConfig:
    with _refusing(file, "reads no config in"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            file, local_files_only=True, trust_remote_code=False
        )
    is_decoder = getattr(config, "is_decoder", True)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or not is_decoder:
        raise WorkloadError(
            f"{str(file)!r} is the config of {config.model_type}, which is no causal language "
            "model; give one of a decoder, as Llama's or GPT-2's"
        )
    config.use_cache = config.get_text_config().use_cache = False
    return config


def _sequence(reference: ModelReference, config: PreTrainedConfig) -> int:
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    if reference.sequence is None:
        return min(LONGEST_DEFAULT, longest or LONGEST_DEFAULT)
    if longest is not None and reference.sequence > longest:
        raise WorkloadError(
            f"sequence={reference.sequence}: the model's longest is {longest} "
            f"(max_position_embeddings in {str(reference.config_file)!r})"
        )
    return reference.sequence


def _as_tokens(text: Corpus, reference: ModelReference, config: PreTrainedConfig) -> Corpus:
    """Return the text as ids that the model has; shape (length,) each."""
    vocabulary = config.get_text_config().vocab_size
    if not _holds(reference.folder, _TOKENIZERS):
        is_enough = vocabulary >= NUM_BYTES
        return (
            text
            if is_enough
            else Corpus(training=text.training % vocabulary, held_out=text.held_out % vocabulary)
        )
    tokenizer = AutoTokenizer.from_pretrained(
        reference.folder, local_files_only=True, trust_remote_code=False
    )
    tokens = replace(
        text,
        training=_tokenized(tokenizer, text.training),
        held_out=_tokenized(tokenizer, text.held_out),
    )
    largest = max(int(ids.max()) for ids in (tokens.training, tokens.held_out))
    if largest >= vocabulary:
        raise WorkloadError(
            f"the tokenizer in {str(reference.folder)!r} has an id of {largest}, and the model "
            f"a vocabulary of {vocabulary}; they belong to different models"
        )
    return tokens


def _tokenized(tokenizer: transformers.PreTrainedTokenizerBase, text: Tensor) -> Tensor:
    content = text[:_TOKENIZED_BYTES].numpy().tobytes().decode(errors="replace")
    starts = range(0, len(content), _CHUNK_CHARACTERS)
    chunks = [content[start : start + _CHUNK_CHARACTERS] for start in starts]
    read = tokenizer(chunks, add_special_tokens=False, verbose=False)
    return torch.tensor([token for ids in read["input_ids"] for token in ids], dtype=torch.int32)


def _digest(path: Path) -> str:
    """Return a hash of a file's size and of both its ends: weights may be too large to read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        return hashlib.sha256(b"%d" % size + start + file.read()).hexdigest()


def _holds(folder: Path | None, names: tuple[str, ...]) -> bool:
    return folder is not None and any((folder / name).is_file() for name in names)
