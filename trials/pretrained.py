"""A model as transformers builds it from a ``config.json`` on this machine.

Nothing is ever downloaded, and no code beside a config is run. The weights are random, unless
the config's folder holds some. Text is read by the folder's tokenizer, or byte by byte.
"""

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read at the first import
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a CPU trial has the threads it was given

import huggingface_hub.constants
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from trials.corpus import NUM_BYTES
from trials.errors import WorkloadError
from trials.model_reference import ModelReference, ModelTask
from trials.samples import byte_ids

huggingface_hub.constants.HF_HUB_OFFLINE = True  # where something imported it before
_AUTO = {
    ModelTask.CAUSAL: (
        transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.AutoModelForCausalLM,
    ),
    ModelTask.MASKED: (
        transformers.MODEL_FOR_MASKED_LM_MAPPING,
        transformers.AutoModelForMaskedLM,
    ),
    ModelTask.SEQ2SEQ: (
        transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        transformers.AutoModelForSeq2SeqLM,
    ),
    ModelTask.VISION: (
        transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        transformers.AutoModelForImageClassification,
    ),
}
_REFUSALS = (
    *(ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError),
    *(TypeError, ValueError, StrictDataclassError),
)
_END_BYTES = 2**20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SHARDS = ("*.safetensors", "pytorch_model*.bin", "*.index.json", "merges.txt", "vocab.json")


class Pretrained:
    """A model's config, weights and tokenizer.

    Attributes:
        config: As transformers reads it, without a cache.
        task: What the model is trained to do.
        longest: Tokens that it has positions for; None for any number.
    """

    def __init__(self, reference: ModelReference) -> None:
        """Read the config, and build the model without memory.

        That shows what it cannot be built from, and imports what building imports.

        Raises:
            WorkloadError: No model that transformers can build.
        """
        self._file, self._folder = reference.config_file, reference.folder
        with _refusing(self._file, "reads no config in"):
            self._is_untied, self.config = _read_config(self._file)
        self.task = _task(self.config, reference)
        reads_text = self.task != ModelTask.VISION
        if reads_text:
            self.config.use_cache = self.config.get_text_config().use_cache = False
        with torch.device("meta"), _refusing(self._file, "builds no model from"):
            self.longest = _longest(self.config, self._from_config())
        self._tokenizer: Any = None
        if reads_text and _holds(self._folder, _TOKENIZERS):
            self._tokenizer = AutoTokenizer.from_pretrained(
                self._folder, local_files_only=True, trust_remote_code=False
            )

    @property
    def has_weights(self) -> bool:
        """Whether the folder holds weights, so that training goes on from them."""
        return _holds(self._folder, _WEIGHTS)

    @property
    def padding_id(self) -> int:
        """What a text is padded with."""
        return _first_id(self.config, "pad_token_id")

    @property
    def start_id(self) -> int:
        """What a decoder is given before its first token."""
        return _first_id(self.config, "decoder_start_token_id", "pad_token_id", "bos_token_id")

    @property
    def mask_id(self) -> int:
        """What stands for a hidden token: the tokenizer's, or the vocabulary's last id."""
        own = getattr(self._tokenizer, "mask_token_id", None)
        return self._vocabulary - 1 if own is None else int(own)

    def build(self) -> nn.Module:
        """Return the model on CPU in fp32.

        Raises:
            WorkloadError: The folder's weights are those of another model.
        """
        if not self.has_weights:
            return self._from_config()
        model, found = _AUTO[self.task][1].from_pretrained(
            self._folder,
            config=copy.deepcopy(self.config),
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        body = f"{model.base_model_prefix}."
        missing = sorted(key for key in found["missing_keys"] if key.startswith(body))
        if missing:
            raise WorkloadError(
                f"the weights in {str(self._folder)!r} lack {len(missing)} of the model's "
                f"tensors, such as {missing[0]}; they belong to another config"
            )
        loaded: nn.Module = model
        return loaded

    def outline(self) -> nn.Module:
        """Return the model with shapes and without memory or weights."""
        with torch.device("meta"):
            return self._from_config()

    def read(self, texts: Sequence[str]) -> list[Tensor]:
        """Return each text as ids that the model has; shape (length,) each.

        Raises:
            WorkloadError: The tokenizer has ids that the model has not.
        """
        if self._tokenizer is None:
            # What stands for a hidden token stands for no byte.
            usable = self._vocabulary - (self.task == ModelTask.MASKED)
            read = [byte_ids(text.encode()) for text in texts]
            return read if usable >= NUM_BYTES else [ids % usable for ids in read]
        found = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        largest = max((max(ids) for ids in found if ids), default=0)
        if largest >= self._vocabulary:
            raise WorkloadError(
                f"the tokenizer in {str(self._folder)!r} has an id of {largest}, and the model "
                f"a vocabulary of {self._vocabulary}; they belong to different models"
            )
        return [torch.tensor(ids, dtype=torch.int32) for ids in found]

    def identity(self) -> dict[str, object]:
        """Return what measurements of the model depend on; plain JSON."""
        patterns = [*_TOKENIZERS, *_SHARDS]
        folder = self._folder
        beside = [] if folder is None else [p for name in patterns for p in folder.glob(name)]
        return {
            "config": _digest(self._file),
            "files": {path.name: _digest(path) for path in sorted(beside) if path.is_file()},
            "task": self.task.value,
            "transformers": transformers.__version__,
        }

    @property
    def _vocabulary(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    def _from_config(self) -> nn.Module:
        model: nn.Module = _AUTO[self.task][1].from_config(
            copy.deepcopy(self.config), dtype=torch.float32, trust_remote_code=False
        )
        if self._is_untied:
            _untie(model)
        return model


def _read_config(file: Path) -> tuple[bool, PreTrainedConfig]:
    """Return whether a file says that the output layer has its own weights, and its config."""
    fields = json.loads(file.read_text())
    if fields.get("model_type") == "deepseek":
        # Only what needs it pays for the import.
        from trials.deepseek import register_deepseek

        register_deepseek()
    config: PreTrainedConfig = AutoConfig.from_pretrained(
        file, local_files_only=True, trust_remote_code=False
    )
    return fields.get("tie_word_embeddings") is False, config


def _untie(model: Any) -> None:
    """Give the output layer weights of its own, which transformers refuses to T5 of any version.

    They are drawn as the embedding's are, in another order.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is embedding.weight:
        tied = head.weight.detach()
        head.weight = nn.Parameter(tied[torch.randperm(len(tied), device=tied.device)])


def _task(config: PreTrainedConfig, reference: ModelReference) -> ModelTask:
    """Return what a config's model is trained to do: as asked, or as its class says."""
    file = str(reference.config_file)
    fitting = [task for task in ModelTask if _fits(task, config)]
    if not fitting:
        raise WorkloadError(
            f"{file!r} is the config of {config.model_type}, which is no causal, masked or "
            "seq2seq language model and no image classifier"
        )
    if reference.task is not None and reference.task not in fitting:
        raise WorkloadError(
            f"task={reference.task}: {file!r} is the config of {config.model_type}, which can be "
            f"trained for {', '.join(fitting)}"
            + (" (for causal, set is_decoder in it)" if ModelTask.MASKED in fitting else "")
        )
    named = [task for task in fitting if set(config.architectures or []) & _classes(task, config)]
    open_to = [reference.task] if reference.task is not None else named or fitting
    if len(open_to) > 1 and config.is_encoder_decoder and ModelTask.SEQ2SEQ in open_to:
        return ModelTask.SEQ2SEQ
    if len(open_to) > 1:
        raise WorkloadError(
            f"{file!r} is the config of {config.model_type}, which can be trained for "
            f"{', '.join(open_to)}; say which, as in ?task={open_to[0]}"
        )
    return open_to[0]


def _fits(task: ModelTask, config: PreTrainedConfig) -> bool:
    """Tell whether a config has a model for a task, with the attention that the task needs."""
    if type(config) not in _AUTO[task][0]:
        return False
    is_decoder = getattr(config, "is_decoder", None)
    if task == ModelTask.CAUSAL:  # an encoder-decoder's decoder alone is one
        return config.is_encoder_decoder or is_decoder is not False
    return task != ModelTask.MASKED or not (config.is_encoder_decoder or is_decoder)


def _classes(task: ModelTask, config: PreTrainedConfig) -> set[str]:
    found = _AUTO[task][0][type(config)]
    return {kind.__name__ for kind in (found if isinstance(found, list | tuple) else [found])}


def _longest(config: PreTrainedConfig, model: nn.Module) -> int | None:
    """Return the tokens that a model has positions for; None for any number.

    RoBERTa counts positions from after its padding id, hence has fewer than its config says.
    """
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    for name, module in model.named_modules():
        is_table = isinstance(module, nn.Embedding) and name.endswith("position_embeddings")
        if is_table and module.padding_idx is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    return longest


def _first_id(config: PreTrainedConfig, *names: str) -> int:
    values = (getattr(config.get_text_config(), name, None) for name in names)
    return next((int(value) for value in values if value is not None), 0)


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


def _digest(path: Path) -> str:
    """Return a hash of a file's size and of both its ends: weights may be too large to read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        return hashlib.sha256(b"%d" % size + start + file.read()).hexdigest()


def _holds(folder: Path | None, names: tuple[str, ...]) -> bool:
    return folder is not None and any((folder / name).is_file() for name in names)
