import json
import sys

import pytest
import torch

from search_spaces import TrainingConfig
from trials.errors import WorkloadError
from trials.measurement import Outcome
from trials.spec import Task
from trials.workload import fingerprint, load_workload

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


def written(folder, config=LLAMA, name="config.json", **fields):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({**config, **fields}))
    return path


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "llama").parent


def load(path, options=""):
    return load_workload(f"huggingface:{path}{options}")


def losses(workload, steps, rate=3e-3):
    torch.manual_seed(0)
    model = workload.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    found = []
    for batch, _ in zip(workload.batches(8, seed=0), range(steps), strict=False):
        loss = workload.loss(model, batch) / workload.count(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_a_config_is_built_in_fp32_without_a_cache_with_its_blocks_found(folder):
    workload = load(folder)
    model = workload.build()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.use_cache is False
    assert [type(block).__name__ for block in workload.blocks(model)] == ["LlamaDecoderLayer"] * 2


def test_it_learns_and_predicts_each_token_from_those_before(folder):
    found = losses(load(folder, "?sequence=32"), steps=15)
    assert found[0] == pytest.approx(5.55, abs=0.1)  # the logarithm of 256
    assert found[-1] < found[0] - 1


def test_tied_weights_stay_tied(folder):
    model = load(folder).build()
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("fields", "options", "length"),
    [
        ({}, "", 64),
        ({}, "?sequence=16", 16),
        ({"max_position_embeddings": 4096}, "", 1024),
        ({"max_position_embeddings": 4096}, "?sequence=2000", 2000),
    ],
)
def test_the_sequence_is_the_option_or_what_the_model_allows(tmp_path, fields, options, length):
    workload = load(written(tmp_path / "model", **fields), options)
    batch = next(workload.batches(2, seed=0))
    assert batch.shape == (2, length + 1) and workload.count(batch) == 2 * length


def test_equal_seeds_give_equal_weights_and_samples_however_split(folder):
    workload = load(folder)
    built = []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(workload.build().lm_head.weight)
    assert torch.equal(*built)
    one = workload.batches(1, seed=5)
    assert torch.equal(next(workload.batches(2, seed=5)), torch.cat([next(one), next(one)]))


def test_ids_stay_within_a_small_vocabulary(tmp_path):
    batch = next(load(written(tmp_path / "model", vocab_size=50)).batches(8, seed=0))
    assert 40 < int(batch.max()) < 50


def test_weights_in_the_folder_are_loaded_in_fp32(folder):
    torch.manual_seed(7)
    saved = load(folder).build().to(torch.bfloat16)
    saved.save_pretrained(folder)
    workload = load(folder)
    weight = workload.build().lm_head.weight
    assert torch.equal(weight, saved.lm_head.weight.float())
    assert workload.learning_rate < load(written(folder.parent / "b")).learning_rate


def save_tokenizer(folder, num_words):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: index for index, word in enumerate(["[UNK]", "self", "return", ".", "("])}
    tokenizer = Tokenizer(models.WordLevel(dict(list(words.items())[:num_words]), "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_a_tokenizer_in_the_folder_reads_the_text(folder):
    save_tokenizer(folder, 5)
    ids = next(load(folder).batches(8, seed=0))
    assert set(ids.unique().tolist()) == {0, 1, 2, 3, 4}


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = written(tmp_path / "model", vocab_size=3).parent
    save_tokenizer(folder, 5)
    with pytest.raises(WorkloadError, match=r"has an id of 4, and the model a vocabulary of 3"):
        load(folder)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert"}, "is the config of bert, which is no causal language model"),
        ({"model_type": "t5"}, "is the config of t5, which is no causal language model"),
        ({"model_type": "vit"}, "is the config of vit, which is no causal language model"),
        ({"model_type": "lama"}, "reads no config in"),
        ({"hidden_size": 8}, "ValueError: Unrecognized model in"),
        ({**LLAMA, "hidden_size": "8"}, "Field 'hidden_size' expected int, got str"),
        ({**LLAMA, "hidden_act": "none"}, "builds no model from"),
    ],
    ids=["bert", "t5", "vit", "unknown", "nameless", "mistyped", "unbuildable"],
)
def test_what_is_no_causal_language_model_says_so(tmp_path, config, words):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_a_sequence_beyond_the_model_is_refused(folder):
    with pytest.raises(WorkloadError, match=r"sequence=65: the model's longest is 64 "):
        load(folder, "?sequence=65")


def test_a_sequence_beyond_the_text_is_refused(tmp_path):
    path = written(tmp_path / "model", max_position_embeddings=10**9)
    with pytest.raises(WorkloadError, match=r"sequence=9000000 is longer than the text there is"):
        load(path, "?sequence=9000000")


def test_nothing_is_downloaded(folder):
    import huggingface_hub.constants

    load(folder)
    assert huggingface_hub.constants.HF_HUB_OFFLINE


def test_the_fingerprint_follows_the_config_and_options_and_not_the_place(tmp_path):
    references = [
        f"huggingface:{written(tmp_path / 'a')}",
        f"huggingface:{written(tmp_path / 'b').parent}",
        f"huggingface:{tmp_path / 'a'}?sequence=16",
        f"huggingface:{written(tmp_path / 'c', hidden_size=32)}",
    ]
    prints = [fingerprint(reference, load_workload(reference)) for reference in references]
    assert prints[0] == prints[1] and len(set(prints)) == 3


def test_the_fingerprint_follows_weights_of_equal_size(folder):
    prints = []
    for scale in (1.0, 2.0):
        model = load(folder).build()
        model.lm_head.weight.data *= scale
        model.save_pretrained(folder)
        prints.append(fingerprint(f"huggingface:{folder}", load(folder)))
    assert prints[0] != prints[1]


def test_without_transformers_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "trials.huggingface", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(WorkloadError, match=r"pip install 'autotune\[huggingface\]'"):
        load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task.DESCRIBE, Task.MEASURE])
def test_a_trial_of_one_completes(run, folder, task):
    found = run(
        f"huggingface:{folder}?sequence=16",
        task=task,
        config=TrainingConfig(checkpoint_interval=1, amp_dtype="bf16"),
        memory_budget_bytes=300 * 2**20,
    )
    assert found.outcome == Outcome.COMPLETED, found.failure
    assert task != Task.DESCRIBE or found.facts.num_blocks == 2
