"""Files that people train with today, whole and broken, as the config to beat."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import SettingsError
from autotune.exports import read_config
from autotune.exports.accelerate_reading import FILE_KEY, KEYS_OF_A_FILE, KNOWN_KEYS, OLDER_KEYS
from autotune.exports.deepspeed_keys import TOP_LEVEL_BLOCKS
from autotune.exports.deepspeed_reading import BATCH_KEYS
from autotune.exports.transformers_reading import REMOVED_KEYS, UNDERSTOOD
from search_spaces import TrainingConfig
from tests.autotune.exports.handovers import deepspeed_json, handed_over, written

ZERO = {"zero_optimization": {"stage": 2}}
ACCELERATE = {"distributed_type": "DEEPSPEED", "num_processes": 2}


@pytest.fixture
def write(tmp_path):
    def write(document, name="today.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("junk")


@pytest.fixture
def read(write):
    return lambda document, name="today.json": read_config(write(document, name))


def config(reading, batch=8, num_devices=1):
    return reading.config(batch, num_devices)


def test_a_deepspeed_file_of_numbers_is_a_config(read):
    found = read(
        {
            "train_batch_size": 48,
            "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": 3,
            "fp16": {"enabled": True, "loss_scale": 0},
            "optimizer": {"type": "Lion"},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        }
    )
    expected = {
        "amp_dtype": "fp16",
        "micro_batch_size": 8,
        "accumulation_steps": 3,
        "optimizer": "lion",
        "zero_stage": 3,
        "offload_target": "cpu",
    }
    assert config(found) == TrainingConfig.from_mapping(expected)
    assert "weights in 16 bits" in "".join(found.notes)


@pytest.mark.parametrize(
    ("batch", "num_devices", "split"), [(8, 1, (8, 1)), (8, 2, (4, 1)), (12, 4, (3, 1))]
)
def test_auto_is_the_batch_of_the_study(read, batch, num_devices, split):
    auto = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    found = read({**ZERO, **auto, "train_batch_size": "auto"})
    made = found.config(batch, num_devices)
    assert (made.micro_batch_size, made.accumulation_steps) == split
    assert any("follows from the global batch" in note for note in found.notes)


def test_one_half_of_the_batch_gives_the_other(read):
    found = read({**ZERO, "gradient_accumulation_steps": 4})
    assert config(found).micro_batch_size == 2
    with pytest.raises(SettingsError, match=r"5 devices do not divide .* of 8; .* 4 and 8"):
        found.config(8, 5)
    assert config(read({**ZERO, "train_batch_size": 32})).micro_batch_size == 32


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"zero_optimization": {"stage": 3, "aio": {"block_size": 1}}},
            "zero_optimization.aio is misplaced: aio belongs at top level",
        ),
        ({"zero_optimization": {"stag": 3}}, "no key 'stag'; did you mean 'stage'"),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"buffer_size": 1}}},
            "no key 'buffer_size': it belongs in zero_optimization.offload_param",
        ),
        ({**ZERO, "fp16": {"enabeld": True}}, "fp16 has no key 'enabeld'; did you mean"),
        ({**ZERO, "optimizer": {"type": "OneBitAdam"}}, "'OneBitAdam' is no optimizer of ours"),
        ({**ZERO, "train_micro_batch_size_per_gpu": "many"}, "must be a whole number"),
        ({**ZERO, "train_batch_size": 7, "gradient_accumulation_steps": 2}, "no multiple"),
        ({"zero_optimization": {"stage": 4}}, "must be 0, 1, 2 or 3"),
        (
            {**ZERO, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
            "cannot both be true",
        ),
        ({**ACCELERATE, "mixed_precison": "bf16"}, "accelerate knows no key 'mixed_precison'"),
        ({**ACCELERATE, "mixed_precision": "fp8"}, "'fp8' is none of no, bf16, fp16"),
        ({**ACCELERATE, "mixed_precision": False}, "write 'no'"),
        ({"distributed_type": "XLA"}, "XLA is no knob here"),
        (
            {
                **ACCELERATE,
                "deepspeed_config": {"deepspeed_config_file": "gone.json", "zero_stage": 2},
            },
            "deepspeed_config_file and zero_stage: accelerate takes one or the other.*no 'gone",
        ),
        ({"per_device_train_batchsize": 4, "bf16": True}, "did you mean 'per_device_train_batch"),
        ({"optim": "adafactor"}, "'adafactor' is no optimizer of ours"),
        ({"bf16": True, "fp16": True}, "cannot both be true"),
        ({"bf16": True, "deepspeed": "gone.json"}, "there is no 'gone.json'"),
        ({**ZERO, "autotune": True}, "autotune=True: must be a block"),
        ({**ZERO, "autotune": {"config": 7}}, "config=7: must be a block"),
        ({**ZERO, "fp16": {"enabled": "true"}}, "fp16.enabled='true': must be true or false"),
        ({**ZERO, "train_batch_size": True}, "train_batch_size=True: must be a whole number"),
        ({**ZERO, "torch_autocast": {"enabled": True, "dtype": ["bf16"]}}, "must be fp32, tf32"),
        ({"zero_optimization": 2}, "zero_optimization=2: must be a block"),
        ({**ACCELERATE, "deepspeed_config": "ds.json"}, "deepspeed_config='ds.json': must be"),
        ({**ACCELERATE, "dynamo_config": "inductor"}, "dynamo_config='inductor': must be a block"),
        ({**ACCELERATE, "dynamo_backend": ["inductor"]}, "dynamo_backend=.*: must be a name"),
        ({**ACCELERATE, "mixed_precision": ["bf16"]}, "'bf16'. is none of no, bf16, fp16"),
        ({"bf16": "true"}, "bf16='true': must be true or false, without quotes"),
        ({"bf16": True, "torch_compile": "false"}, "torch_compile='false': must be true or false"),
        (
            {
                "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": '{"use_reentrant": false}',
            },
            "gradient_checkpointing_kwargs=.*: must be a block of keys",
        ),
        ({"bf16": True, "deepspeed": "d" * 300}, "is no path: File name too long"),
        (
            {"bf16": True, "learning_rate": 1e-4, "deepspeed": {**ZERO, "gradient_clipping": 1}},
            None,
        ),
        (
            {
                "learning_rate": 1e-4,
                "deepspeed": {**ZERO, "optimizer": {"type": "AdamW", "params": {"lr": 5e-5}}},
            },
            "optimizer.params.lr=5e-05 against learning_rate=0.0001",
        ),
    ],
    ids=str,
)
def test_a_broken_file_is_refused_with_what_is_wrong_and_where(read, document, words):
    if words is None:
        read(document)
        return
    with pytest.raises(SettingsError, match=words) as caught:
        read(document)
    assert "today.json" in str(caught.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, "cpu_offload is deprecated"),
        (
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 0}},
            "reduce_bucket_size=0: DeepSpeed now refuses it",
        ),
        (
            {"zero_optimization": {"stage": "3", "sub_group_size": "1e9"}},
            "sub_group_size is the text '1e9', taken as the number 1000000000.0",
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
            "offload_param cpu: taken as offload_target=cpu",
        ),
        ({**ZERO, "bf16": {"enabled": "auto"}}, "bf16.enabled is 'auto': fp32 is taken"),
        ({"bf16": True, "warmup_ratio": 0.1}, "warmup_ratio is deprecated: warmup_steps"),
        ({"bf16": True, "fsdp": "full_shard"}, "fsdp is no knob here"),
        ({"bf16": True, "gradient_checkpointing": True}, "use_reentrant false"),
        ({"bf16": True}, "transformers takes 8"),
        ({"bf16": True, "auto_find_batch_size": True}, "taken as written"),
        ({**ACCELERATE, "mixed_precision": "bf16"}, "keeps weights in 16 bits"),
        ({"distributed_type": "NO", "dynamo_backend": "NO"}, "dynamo_backend is deprecated"),
    ],
    ids=str,
)
def test_what_is_taken_otherwise_is_noted(read, document, words):
    assert words in "\n".join(read(document).notes)


def test_an_older_offload_is_an_offload(read):
    found = read({"zero_optimization": {"stage": 2, "cpu_offload": True}})
    assert config(found).offload_target == "cpu"


def test_a_number_without_a_dot_is_a_text_in_yaml_and_a_number_here(read):
    text = "per_device_train_batch_size: 4\nlearning_rate: 2e-5\nbf16: true\n"
    found = read(text, "args.yaml")
    assert "learning_rate is the text '2e-5', taken as the number 2e-05" in found.notes
    assert config(found).amp_dtype == "bf16"


def test_arguments_find_their_deepspeed_file_beside_them(write, read):
    write({**ZERO, "train_micro_batch_size_per_gpu": "auto"}, "ds.json")
    found = read({"per_device_train_batch_size": 2, "bf16": True, "deepspeed": "conf/ds.json"})
    expected = {"micro_batch_size": 2, "amp_dtype": "bf16", "zero_stage": 2}
    assert config(found) == TrainingConfig.from_mapping(expected)
    assert found.notes == ()


def test_what_a_person_changes_in_an_export_counts(tmp_path):
    path = written("accelerate", handed_over(zero_stage=2, amp_dtype="bf16"), tmp_path / "a.yaml")
    part = tmp_path / "a.deepspeed.json"
    document = json.loads(part.read_text())
    document["train_micro_batch_size_per_gpu"] = 2
    document["train_batch_size"] = 4
    part.write_text(json.dumps(document))
    assert config(read_config(path)).micro_batch_size == 2
    path.write_text(path.read_text().replace('"amp_dtype"', '"amp_type"', 1))
    with pytest.raises(SettingsError, match="no longer what autotune wrote"):
        read_config(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: [", "no YAML"),
        (
            "a.yaml",
            "- 1",
            "none of the keys of accelerate, TrainingArguments, ",
        ),
        ("a.json", "[]", "has no 'config' table"),
        ("a.json", '{"seed": 1}', "has no 'config' table"),
        ("a.toml", "[config", "cannot be read as JSON or TOML"),
        ("a.env", "", "cannot be read|has no 'config' table"),
        ("a.env", "TRAIN_AMP_DTYPE='bf16", "is no text for a shell: No closing quot"),
        ("a.args", '--amp-dtype "bf16', "is no text for a shell: No closing quot"),
        ("a.yaml", "bf16: 2026-13-45", "no YAML: month must be in"),
        ("a.yaml", "bf16: &a [*a]", "nested too deep, or holds itself"),
    ],
)
def test_a_file_of_nothing_known_is_named(read, name, text, words):
    with pytest.raises(SettingsError, match=words) as caught:
        read(text, name)
    assert name in str(caught.value)


def test_our_deepspeed_file_keeps_the_knobs_that_deepspeed_has_none_for(read):
    knobs = {"checkpoint_interval": 2, "optimizer_bits": 8, "zero_stage": 1}
    found = config(read(deepspeed_json(on="cuda", **knobs)))
    assert (found.checkpoint_interval, found.optimizer_bits, found.zero_stage) == (2, 8, 1)


@pytest.mark.parametrize(("backend", "compiled"), [("no", "off"), ("NO", "off"), ("EAGER", "on")])
def test_a_backend_of_the_compiler_other_than_no_compiles(read, backend, compiled):
    document = {"distributed_type": "NO", "dynamo_config": {"dynamo_backend": backend}}
    assert config(read(document)).compile == compiled


BLOCKS = [
    *("deepspeed", "autotune", "config", "deepspeed_config", "dynamo_config", "torch_autocast"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "zero_optimization"),
    *("fp16", "bf16", "optimizer", "offload_optimizer", "offload_param"),
]
OF_BLOCKS = [
    *("enabled", "dtype", "device", "stage", "type", "dynamo_backend", "every_n_layers", FILE_KEY),
    *("cpu_offload", "cpu_offload_param", *KEYS_OF_A_FILE, *BATCH_KEYS, "train_batch_size"),
]
OTHERS = sorted(
    UNDERSTOOD | KNOWN_KEYS | OLDER_KEYS.keys() | REMOVED_KEYS.keys() | set(TOP_LEVEL_BLOCKS)
)
KEYS = st.one_of(*map(st.sampled_from, (BLOCKS, OF_BLOCKS, OTHERS)))
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(-9, 99), st.floats(allow_nan=False)),
    st.sampled_from(["auto", "true", "no", "bf16", "cpu", "1", "2e-5", "DEEPSPEED", "ds.json"]),
    st.text(max_size=8),
)
JUNK = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
BEGUN = st.sampled_from(
    [{}, ZERO, ACCELERATE, {"bf16": True}, {"gradient_checkpointing": True}, {"deepspeed": ZERO}]
)


@settings(max_examples=400, deadline=None)
@given(BEGUN, st.dictionaries(KEYS, JUNK, max_size=4), st.sampled_from(["a.json", "a.yaml"]))
def test_junk_in_a_known_key_is_a_mistake_of_the_user_or_a_config(folder, begun, junk, name):
    path = folder / name
    path.write_text(json.dumps({**begun, **junk}))
    try:
        found = read_config(path).config(8, 1)
    except SettingsError as error:
        assert name in str(error)
    else:
        assert isinstance(found, TrainingConfig)
