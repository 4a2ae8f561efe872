import json
import tomllib
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.documents import (
    EXPORT_FORMATS,
    export_config,
    flattened,
    read_exported_config,
    trial_columns,
    trial_document,
)
from autotune.errors import SettingsError
from autotune.records import Source
from search_spaces import TrainingConfig, parse_knob
from tests.factories import (
    MIB,
    make_config,
    make_environment,
    make_facts,
    make_measurement,
    make_memory,
    make_oom,
    make_scored,
    make_study_record,
    make_timing,
    make_told,
    make_trial,
)

STUDY = make_study_record()
NOW = datetime(2026, 9, 1, 12, 30, 5, 999, tzinfo=UTC)
KEYS = [
    "study",
    "trial",
    "config",
    "state",
    "source",
    "baseline",
    "slot",
    "outcome",
    "measured",
    "confirmed",
    "verified",
    "reason",
    "throughput_samples_per_second",
    "step_seconds",
    "ended_early",
    "data_wait_seconds",
    "is_data_bound",
    "peak_device_bytes",
    "peak_host_bytes",
    "memory",
    "memory_places",
    "quality",
    "cost_usd_per_million_samples",
    "environment",
]
NOT_MEASURED = replace(
    make_told(0, make_oom(memory=None), source=Source.PREDICTED), measurement=None
)
CONFIGS = st.builds(
    TrainingConfig,
    amp_dtype=st.sampled_from(["fp32", "bf16", "fp16"]).map(lambda v: parse_knob("amp_dtype", v)),
    checkpoint_interval=st.integers(0, 64),
    micro_batch_size=st.integers(1, 4096),
    accumulation_steps=st.integers(1, 4096),
    optimizer_bits=st.sampled_from([32, 8]),
    offload_target=st.sampled_from(["none", "cpu", "nvme"]).map(
        lambda v: parse_knob("offload_target", v)
    ),
)


def read(text, form):
    return json.loads(text) if form == "json" else tomllib.loads(text)


def exported(trial, form="json", study=STUDY):
    return read(export_config(trial, study, form=form, now=NOW), form)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exports")


@pytest.mark.parametrize(
    "trial",
    [make_scored(0), make_told(1, make_oom()), NOT_MEASURED, make_trial(3)],
    ids=["completed", "out of memory", "predicted", "leased"],
)
def test_every_trial_has_the_same_keys(trial):
    document = trial_document(trial, STUDY)
    assert list(document) == KEYS
    assert list(document["quality"]) == ["name", "value", "direction", "noise"]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_measured_trial_says_what_it_found():
    document = trial_document(make_scored(7, noise=(0.2, 0.3, 0.001)), STUDY)
    assert (document["study"], document["trial"]) == ("study", 7)
    assert (document["outcome"], document["measured"]) == ("completed", True)
    assert document["throughput_samples_per_second"] == pytest.approx(16.0)
    assert document["step_seconds"] == {
        "mean": pytest.approx(0.5),
        "low": 0.49,
        "high": 0.51,
        "steps": 3,
    }
    assert document["cost_usd_per_million_samples"] == 10.0


def test_a_document_says_where_the_result_is_from_and_where_it_ran():
    document = trial_document(make_scored(0, source=Source.CACHED, slot="slot-1"), STUDY)
    assert (document["state"], document["source"], document["slot"]) == (
        "told",
        "cached",
        "slot-1",
    )


@pytest.mark.parametrize(("is_driven", "state"), [(True, "running"), (False, "interrupted")])
def test_a_leased_trial_runs_only_under_a_living_driver(is_driven, state):
    document = trial_document(make_trial(0), STUDY, is_driven=is_driven)
    assert (document["state"], document["outcome"]) == (state, None)


def test_the_columns_are_those_of_every_trial_but_for_kinds_of_memory():
    trials = [make_scored(0, measurement=make_measurement(memory=None)), make_told(1)]
    columns = trial_columns(STUDY)
    assert {"config.amp_dtype", "step_seconds.mean", "quality.name", "slot"} <= set(columns)
    assert list(flattened(trial_document(trials[0], STUDY))) == columns
    assert set(flattened(trial_document(trials[1], STUDY))) - set(columns) == {
        "memory.parameters",
        "memory_places.parameters.device",
    }


def test_memory_is_in_bytes_by_kind():
    memory = make_memory(by_kind={"parameters": 100 * MIB, "activations": MIB})
    document = trial_document(make_told(0, make_measurement(memory=memory)), STUDY)
    assert document["memory"] == {"parameters": 100 * MIB, "activations": MIB}
    assert document["peak_device_bytes"] == 400 * MIB
    assert document["peak_host_bytes"] == 200 * MIB


def test_memory_is_told_by_where_it_lives():
    away = {"optimizer_state": {"disk": 7 * MIB}}
    memory = make_memory(by_kind={"parameters": MIB, "optimizer_state": 0}, elsewhere=away)
    document = trial_document(make_told(0, make_measurement(memory=memory)), STUDY)
    assert document["memory_places"] == {
        "parameters": {"device": MIB},
        "optimizer_state": {"device": 0, "disk": 7 * MIB},
    }
    assert document["memory"] == {"parameters": MIB, "optimizer_state": 0}


@pytest.mark.parametrize(("wait", "is_bound"), [(0.217, True), (0.001, False)])
def test_waiting_for_data_is_told_with_whether_it_is_much(wait, is_bound):
    timing = make_timing(0.08, data_wait_seconds=wait)
    document = trial_document(make_told(0, make_measurement(timing=timing)), STUDY)
    assert (document["data_wait_seconds"], document["is_data_bound"]) == (wait, is_bound)
    assert document["throughput_samples_per_second"] == pytest.approx(100.0)


def test_quality_is_named_with_its_direction_and_noise():
    quality = trial_document(make_scored(0, noise=(0, 0, 0.001)), STUDY)["quality"]
    assert quality == {
        "name": "held-out loss",
        "value": 2.5,
        "direction": "minimize",
        "noise": 0.001,
    }


def test_a_config_is_every_knob_by_name():
    document = trial_document(make_scored(0), STUDY)
    assert document["config"] == make_config().as_dict()


def test_a_trial_that_did_not_fit_says_why_and_has_no_timing():
    document = trial_document(make_told(0, make_oom()), STUDY)
    assert document["outcome"] == "out_of_memory"
    assert document["reason"] == "OutOfMemoryError: tried to allocate 1.00 GiB"
    assert document["throughput_samples_per_second"] is None
    assert document["step_seconds"] is None


def test_a_predicted_trial_is_marked_as_not_measured():
    document = trial_document(NOT_MEASURED, STUDY)
    assert document["measured"] is False
    assert (document["peak_device_bytes"], document["memory"]) == (None, {})


def test_the_environment_says_where_it_was_measured():
    environment = trial_document(make_scored(0), STUDY)["environment"]
    assert environment["device_name"] == "Test CPU"
    assert environment["torch"] == "2.9.0"


@pytest.mark.parametrize("form", EXPORT_FORMATS)
@given(config=CONFIGS)
def test_an_exported_config_is_read_back_as_it_was(form, config, folder):
    path = folder / f"config.{form}"
    path.write_text(export_config(make_scored(0, config=config), STUDY, form=form, now=NOW))
    assert read_exported_config(path) == config


@pytest.mark.parametrize("form", EXPORT_FORMATS)
@given(config=CONFIGS, num_devices=st.integers(1, 64))
def test_an_exported_batch_is_the_product_of_its_parts(form, config, num_devices):
    space = replace(STUDY.spec.space, num_devices=num_devices)
    study = replace(STUDY, spec=replace(STUDY.spec, space=space))
    batch = exported(make_scored(0, config=config), form, study)["batch"]
    parts = (batch["micro_batch_size"], batch["accumulation_steps"], batch["num_devices"])
    assert parts == (config.micro_batch_size, config.accumulation_steps, num_devices)
    assert batch["global_batch_size"] == parts[0] * parts[1] * parts[2]


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_an_export_says_what_was_measured_and_where(form):
    document = exported(make_scored(4), form)
    assert (document["study"], document["trial"], document["workload"]) == ("study", 4, "byte-gpt")
    assert document["exported_at"] == "2026-09-01T12:30:05+00:00"
    assert document["measured"] == {
        "throughput_samples_per_second": pytest.approx(16.0),
        "peak_device_bytes": 400 * MIB,
        "peak_host_bytes": 200 * MIB,
        "cost_usd_per_million_samples": 10.0,
        "held-out loss": 2.5,
    }
    assert document["environment"]["device_name"] == "Test CPU"


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_an_export_leaves_out_what_is_not_known(form):
    document = exported(make_trial(0), form)
    assert document["measured"] == {}
    assert "cuda" not in document["environment"]


@pytest.mark.parametrize("form", EXPORT_FORMATS)
@example(name="\x7f")
@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_names_that_a_person_chose_survive_an_export(form, name):
    study = make_study_record(
        facts=make_facts(quality_name=name), environment=make_environment(device_name=name)
    )
    document = exported(make_scored(0, study=name), form, study)
    assert document["study"] == document["environment"]["device_name"] == name
    assert document["measured"][name] == 2.5


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(SettingsError, match="no export format 'yaml'; known: json, toml"):
        export_config(make_scored(0), STUDY, form="yaml", now=NOW)


def test_a_file_that_a_person_wrote_may_hold_the_config_alone(tmp_path):
    path = tmp_path / "today.toml"
    path.write_text('[config]\namp_dtype = "bf16"\nmicro_batch_size = 8\n')
    expected = TrainingConfig.from_mapping({"amp_dtype": "bf16", "micro_batch_size": 8})
    assert read_exported_config(path) == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broken.json", "{", "cannot be read as JSON or TOML"),
        ("broken.toml", "[config", "cannot be read as JSON or TOML"),
        ("list.json", "[]", "has no 'config' table of knobs"),
        ("other.toml", "seed = 1", "has no 'config' table of knobs"),
        ("text.json", '{"config": "fp32"}', "has no 'config' table of knobs"),
        ("knob.toml", "[config]\nmicro_bach_size = 1", "did you mean 'micro_batch_size'"),
        ("value.json", '{"config": {"optimizer_bits": 2}}', "must be 32, 8 or 4"),
        ("null.json", '{"config": {"micro_batch_size": null}}', "must be a whole number"),
        ("binary.toml", "\xff", "cannot be read as JSON or TOML"),
    ],
)
def test_a_file_that_is_none_of_ours_is_named_with_what_is_wrong(name, text, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=words) as caught:
        read_exported_config(path)
    assert name in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"^no baseline file '.*gone\.toml'; check the path$"):
        read_exported_config(tmp_path / "gone.toml")
