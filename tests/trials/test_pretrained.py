import csv
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trials.model_configs import BART, BERT, KINDS, LLAMA, ROBERTA, T5, VIT, written
from trials.errors import WorkloadError
from trials.model_reference import ModelTask
from trials.workload import load_workload

MODELS = Path(__file__).parents[1] / "assets" / "models"
COUNTS = {
    row["model"]: (int(row["params"]), int(row["largest_tensor_elements"]), row["note"])
    for row in csv.DictReader((MODELS / "COUNTS.csv").read_text().splitlines())
}
SMALL_PARAMETERS = 140_000_000
SMALL_MODELS = [name for name, (count, *_) in COUNTS.items() if count < SMALL_PARAMETERS]
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek",
    "architectures": ["DeepseekForCausalLM"],
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "tie_word_embeddings": False,
}


def load(path, options=""):
    return load_workload(f"huggingface:{path}{options}")


def built(path):
    torch.manual_seed(7)
    return load(path).build()


@pytest.mark.parametrize("name", COUNTS)
def test_public_models_have_exactly_the_parameters_they_are_known_for(name):
    """Tied weights count once, and every expert counts."""
    count, largest, note = COUNTS[name]
    workload = load(MODELS / f"{name}.json")
    with torch.device("meta"):
        model = workload.build()
    sizes = [parameter.numel() for parameter in model.parameters()]
    assert sum(sizes) == count
    assert max(sizes) == largest or "fused expert tensors are larger" in note
    config = json.loads((MODELS / f"{name}.json").read_text())
    layers = config.get(
        "num_hidden_layers", config.get("n_layer", 2 * config.get("num_layers", 0))
    )
    assert len(workload.blocks(model)) == layers


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_small_public_models_are_built_in_memory_and_take_a_step(name):
    count, *_ = COUNTS[name]
    is_vision = name.startswith("vit")
    workload = load(MODELS / f"{name}.json", "" if is_vision else "?sequence=8")
    model = workload.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    batch = next(workload.batches(1, seed=0))
    loss = workload.loss(model, batch)
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_is_built_in_fp32(tmp_path, kind):
    model = built(written(tmp_path / "model", KINDS[kind], torch_dtype="bfloat16"))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", ["causal", "seq2seq", "bart"])
def test_nothing_is_cached_for_writing_on(tmp_path, kind):
    workload = load(written(tmp_path / "model", KINDS[kind], use_cache=True), "?sequence=8")
    batch = next(workload.batches(1, seed=0))
    batch.pop("labels")
    assert workload.build()(**batch).past_key_values is None


def test_tied_weights_stay_tied(tmp_path):
    model = built(written(tmp_path / "model"))
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_an_output_layer_of_its_own_is_given_to_t5_too(tmp_path):
    model = built(written(tmp_path / "model", T5, tie_word_embeddings=False))
    head, embedding = model.lm_head.weight, model.shared.weight
    assert head.std().item() == pytest.approx(embedding.std().item(), rel=1e-4)
    assert not torch.equal(head, embedding) and model.encoder.embed_tokens.weight is embedding


@pytest.mark.parametrize(
    ("config", "options", "task"),
    [
        (LLAMA, "", ModelTask.CAUSAL),
        (BERT, "", ModelTask.MASKED),
        ({**BERT, "architectures": None}, "", ModelTask.MASKED),
        ({**BERT, "architectures": ["BertLMHeadModel"], "is_decoder": True}, "", "causal"),
        (T5, "", ModelTask.SEQ2SEQ),
        (BART, "", ModelTask.SEQ2SEQ),
        ({**BART, "architectures": ["BartForCausalLM"]}, "", ModelTask.CAUSAL),
        (BART, "?task=causal", ModelTask.CAUSAL),
        (VIT, "?task=vision", ModelTask.VISION),
    ],
)
def test_the_task_is_what_the_config_or_the_option_says(tmp_path, config, options, task):
    config = {key: value for key, value in config.items() if value is not None}
    assert load(written(tmp_path / "model", config), options).pretrained.task == task


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        ({"model_type": "clap"}, "", "clap, which is no causal, masked or seq2seq language model"),
        (LLAMA, "?task=masked", "is the config of llama, which can be trained for causal"),
        (BERT, "?task=causal", "can be trained for masked (for causal, set is_decoder in it)"),
        ({"model_type": "xlm"}, "", "can be trained for causal, masked; say which, as in ?task="),
        ({"model_type": "lama"}, "", "reads no config in"),
        ({"hidden_size": 8}, "", "ValueError: Unrecognized model in"),
        ({**LLAMA, "hidden_size": "8"}, "", "Field 'hidden_size' expected int, got str"),
        ({**LLAMA, "hidden_act": "none"}, "", "builds no model from"),
    ],
    ids=["none", "other", "encoder", "two", "unknown", "nameless", "mistyped", "unbuildable"],
)
def test_what_cannot_be_trained_says_so(tmp_path, config, options, words):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(WorkloadError) as caught:
        load(path, options)
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1]", "{", "\xff"])
def test_a_config_that_is_none_says_so(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(WorkloadError, match="reads no config in"):
        load(path)


def test_positions_that_roberta_keeps_for_padding_are_not_trained(tmp_path):
    workload = load(written(tmp_path / "model", ROBERTA))
    batch = workload.worst_batch(1)
    assert batch["input_ids"].shape == (1, 62)  # of 64: its padding id is 1
    assert workload.loss(workload.build(), batch).isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_the_folder_are_loaded_in_fp32(tmp_path, kind):
    path = written(tmp_path / "model", KINDS[kind])
    saved = built(path).to(torch.bfloat16)
    saved.save_pretrained(path.parent)
    workload = load(path)
    loaded = workload.build()
    expected = saved.state_dict()
    assert all(torch.equal(t, expected[name].float()) for name, t in loaded.state_dict().items())
    assert workload.learning_rate < load(written(tmp_path / "b", KINDS[kind])).learning_rate


def test_the_weights_of_an_output_layer_of_its_own_are_loaded_into_t5(tmp_path):
    path = written(tmp_path / "model", T5, tie_word_embeddings=False)
    weights = {name: tensor.clone() for name, tensor in built(path).state_dict().items()}
    for shared in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        del weights[shared]
    save_file(weights, path.parent / "model.safetensors", metadata={"format": "pt"})
    loaded = load(path).build()
    assert torch.equal(loaded.lm_head.weight, weights["lm_head.weight"])
    assert torch.equal(loaded.decoder.embed_tokens.weight, weights["shared.weight"])


def test_a_new_head_may_be_trained_on_the_weights_of_a_body(tmp_path):
    path = written(tmp_path / "model", VIT)
    saved = built(path)
    saved.save_pretrained(path.parent)
    weights = load_file(path.parent / "model.safetensors")
    body = {name: tensor for name, tensor in weights.items() if "classifier" not in name}
    save_file(body, path.parent / "model.safetensors", metadata={"format": "pt"})
    loaded = built(path).state_dict()
    same = {
        name for name, tensor in saved.state_dict().items() if torch.equal(tensor, loaded[name])
    }
    assert len(same) >= len(body) and "classifier.weight" not in same


def test_weights_that_lack_a_part_of_the_model_are_refused(tmp_path):
    path = written(tmp_path / "model", BERT)
    built(path).save_pretrained(path.parent)
    written(path.parent, BERT, num_hidden_layers=3)
    with pytest.raises(WorkloadError, match=r"lack 16 of the model's tensors, such as bert\."):
        load(path).build()


def test_deepseeks_experts_are_drawn_as_the_other_weights_and_used(tmp_path):
    workload = load(written(tmp_path / "model", DEEPSEEK), "?sequence=32")
    torch.manual_seed(0)
    model = workload.build()
    deviations = [p.std().item() for p in model.parameters() if p.ndim > 1]
    assert deviations == pytest.approx([0.02] * len(deviations), rel=0.1)
    workload.loss(model, workload.worst_batch(8)).backward()
    experts = model.model.layers[1].mlp.experts
    assert all(experts.down_proj.grad.flatten(1).norm(dim=1) > 0)
    assert "experts" not in str(model.model.layers[0])


def test_the_weights_of_deepseeks_own_checkpoints_are_read(tmp_path):
    path = written(tmp_path / "model", DEEPSEEK)
    model = built(path)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    experts = "model.layers.1.mlp.experts."
    gate_up, down = (weights.pop(f"{experts}{name}") for name in ("gate_up_proj", "down_proj"))
    for expert, (both, last) in enumerate(zip(gate_up, down, strict=True)):
        gate, up = both.chunk(2)
        for name, tensor in (("gate", gate), ("up", up), ("down", last)):
            weights[f"{experts}{expert}.{name}_proj.weight"] = tensor.contiguous().clone()
    save_file(weights, path.parent / "model.safetensors", metadata={"format": "pt"})
    torch.manual_seed(8)
    loaded = load(path).build().state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())


def save_tokenizer(folder, words):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("options", ["", "&packing=off"])
def test_a_tokenizer_in_the_folder_reads_the_text(tmp_path, options):
    folder = written(tmp_path / "model").parent
    save_tokenizer(folder, ["[UNK]", "self", "return"])
    text = tmp_path / "text.txt"
    text.write_text("return self twice\n" * 40)
    batch = load(folder, f"?sequence=3&text={text}{options}").worst_batch(1)
    first = [*batch["input_ids"][0].tolist(), batch["labels"][0, -1].item()]
    assert first == ([2, 1, 0] if options else [2, 1, 0, 2])


def test_a_tokenizers_mask_stands_for_what_is_hidden(tmp_path):
    folder = written(tmp_path / "model", BERT).parent
    save_tokenizer(folder, ["[UNK]", "self", "[MASK]"])
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]"})
    )
    batch = load(folder).worst_batch(1)
    assert torch.equal(batch["labels"] != -100, batch["input_ids"] == 2)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = written(tmp_path / "model", vocab_size=2).parent
    save_tokenizer(folder, ["[UNK]", "self", "return"])
    with pytest.raises(WorkloadError, match=r"has an id of 2, and the model a vocabulary of 2"):
        load(folder)


def test_ids_stay_within_a_small_vocabulary(tmp_path):
    batch = next(load(written(tmp_path / "model", vocab_size=50)).batches(8, seed=0))
    assert 40 < int(batch["input_ids"].max()) < 50


def test_nothing_is_downloaded(tmp_path):
    import huggingface_hub.constants

    load(written(tmp_path / "model"))
    assert huggingface_hub.constants.HF_HUB_OFFLINE


def test_without_transformers_it_says_what_to_install(tmp_path, monkeypatch):
    for name in ("trials.huggingface", "trials.pretrained"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(WorkloadError, match=r"pip install 'autotune\[huggingface\]'"):
        load(written(tmp_path / "model"))
