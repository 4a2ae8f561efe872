import itertools

import pytest
import torch

from trials.byte_gpt import SIZES, Gpt
from trials.errors import WorkloadError
from trials.workload import load_workload


@pytest.mark.parametrize(
    ("name", "millions"), [("1m", 1), ("5m", 5), ("25m", 25), ("85m", 85), ("350m", 350)]
)
def test_each_size_is_about_as_large_as_its_name(name, millions):
    with torch.device("meta"):
        model = Gpt(SIZES[name])
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert counted / 1e6 == pytest.approx(millions, rel=0.2)


def test_batches_are_real_source_text():
    batch = next(load_workload("byte-gpt").batches(4, seed=0))
    assert batch["input_ids"].shape == (4, SIZES["1m"].context)
    text = bytes(batch["input_ids"].flatten().tolist())
    assert sum(32 <= byte < 127 or byte in b"\n\t" for byte in text) > 0.95 * len(text)


def test_the_split_does_not_change_the_order_of_samples():
    workload = load_workload("byte-gpt")
    whole = next(workload.batches(4, seed=3))
    split = list(itertools.islice(workload.batches(1, seed=3), 4))
    for name, tensor in whole.items():
        assert torch.equal(tensor, torch.cat([batch[name] for batch in split]))


def test_held_out_text_is_not_trained_on():
    workload = load_workload("byte-gpt")
    held_out = bytes(workload.held_out.ids[:2000].tolist())
    assert held_out not in bytes(workload.training.ids.tolist())


def test_an_untrained_model_knows_nothing_of_bytes():
    workload = load_workload("byte-gpt")
    torch.manual_seed(0)
    with torch.no_grad():
        loss = workload.evaluate(workload.build().eval(), torch.device("cpu"))
    assert loss == pytest.approx(5.55, abs=0.1)  # the logarithm of 256


def test_an_interpreter_without_sources_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(WorkloadError, match=r"use an interpreter that ships"):
        load_workload("byte-gpt")
