import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import KNOBS, InvalidConfigError, NumericsClass, TrainingConfig, parse_knob

CONFIGS = st.builds(
    TrainingConfig,
    amp_dtype=st.sampled_from(["fp32", "bf16", "fp16"]).map(lambda v: parse_knob("amp_dtype", v)),
    checkpoint_interval=st.integers(0, 64),
    micro_batch_size=st.integers(1, 4096),
    accumulation_steps=st.integers(1, 4096),
    optimizer=st.sampled_from(["adamw", "lion", "sgd"]).map(lambda v: parse_knob("optimizer", v)),
    optimizer_bits=st.sampled_from([32, 8, 4]),
    zero_stage=st.integers(0, 3),
    offload_target=st.sampled_from(["none", "cpu", "nvme"]).map(
        lambda v: parse_knob("offload_target", v)
    ),
    activation_offload=st.sampled_from(["none", "cpu"]).map(
        lambda v: parse_knob("activation_offload", v)
    ),
    checkpoint_deepest=st.integers(0, 64),
    compile=st.booleans().map(lambda v: parse_knob("compile", v)),
)


@given(CONFIGS)
def test_a_config_survives_its_dictionary(config):
    assert TrainingConfig.from_mapping(config.as_dict()) == config


@given(CONFIGS)
def test_a_config_survives_text_values(config):
    texts = {name: str(value) for name, value in config.as_dict().items()}
    assert TrainingConfig.from_mapping(texts).hash == config.hash


@given(CONFIGS, st.integers(1, 64))
def test_the_batch_identity_holds_for_every_config_and_world(config, num_devices):
    product = config.micro_batch_size * config.accumulation_steps * num_devices
    assert config.effective_batch_size(num_devices) == product


def test_the_hash_is_the_same_in_every_process():
    assert TrainingConfig(micro_batch_size=4, optimizer_bits=8).hash == "21f6ee51a5065c64"


def test_an_unknown_knob_is_named_with_the_nearest_known():
    with pytest.raises(InvalidConfigError, match="'micro_batch'; did you mean 'micro_batch_size'"):
        TrainingConfig.from_mapping({"micro_batch": 4})


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("amp_dtype", "fp8"),
        ("checkpoint_interval", -1),
        ("micro_batch_size", 0),
        ("micro_batch_size", 2.5),
        ("micro_batch_size", True),
        ("accumulation_steps", "many"),
        ("optimizer_bits", 16),
        ("offload_target", "disk"),
        ("optimizer", "adam"),
        ("zero_stage", 4),
        ("activation_offload", "nvme"),
        ("checkpoint_deepest", -1),
        ("compile", "maybe"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(knob, value):
    with pytest.raises(InvalidConfigError) as caught:
        TrainingConfig.from_mapping({knob: value})
    assert f"{knob}={value!r}" in str(caught.value)
    assert KNOBS[knob].allowed in str(caught.value)


def test_a_config_cannot_be_built_with_a_bad_value():
    with pytest.raises(InvalidConfigError):
        TrainingConfig(optimizer_bits=2)


def test_checkpointing_offload_and_split_leave_the_numerics_class():
    plain = TrainingConfig(micro_batch_size=8)
    changed = plain.with_knobs(
        {
            "micro_batch_size": 2,
            "accumulation_steps": 4,
            "checkpoint_interval": 2,
            "checkpoint_deepest": 3,
            "zero_stage": 2,
            "offload_target": "cpu",
            "activation_offload": "cpu",
            "compile": "on",
        }
    )
    assert changed.numerics_class() == plain.numerics_class()


@pytest.mark.parametrize(
    "knobs",
    [
        {"amp_dtype": "bf16"},
        {"optimizer": "lion"},
        {"optimizer_bits": 8},
        {"accumulation_steps": 2},
    ],
)
def test_dtype_optimizer_and_effective_batch_change_the_numerics_class(knobs):
    plain = TrainingConfig()
    assert plain.with_knobs(knobs).numerics_class() != plain.numerics_class()


def test_a_numerics_class_reads_as_a_person_would_say_it():
    numerics = NumericsClass(
        amp_dtype=parse_knob("amp_dtype", "bf16"), optimizer_bits=8, effective_batch_size=32
    )
    assert str(numerics) == "bf16, 8-bit, batch 32"
