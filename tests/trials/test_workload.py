import sys

import pytest
import torch

from tests.trials.conftest import SMALL
from trials.errors import WorkloadError
from trials.workload import fingerprint, first_tensor, load_workload, to_device


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("byte-gtp", "no workload 'byte-gtp'; did you mean 'byte-gpt'"),
        ("byte-gpt:3m", "byte-gpt has no size '3m'; its sizes are 1m, 5m, 25m, 85m, 350m"),
        ("gone.py:Mine", "no workload file 'gone.py'; check the path"),
        ("no.such.module:Mine", "no module 'no.such.module'; install it or check the name"),
        (f"{SMALL}:Smal", "no class 'Smal' in"),
        (f"{SMALL}:Smal", "did you mean 'Small'"),
        (f"{SMALL}:VOCABULARY", "is of type int; it must derive from trials.workload.Workload"),
        (f"{SMALL}:NotAWorkload", "known: BreaksInBackward, BreaksInTorch, "),
        ("os.path:join", "os.path:join is of type function; it must derive from trials.workload"),
        ("os.path:join", "; it has no workload"),
        ("os.path:joyn", "no class 'joyn' in os.path; it has no workload"),
        (f"{SMALL}:NotAWorkload", "must derive from trials.workload.Workload"),
        (f"{SMALL}:LacksMethods", "lacks the method(s) batches, evaluate, loss"),
    ],
)
def test_a_reference_that_names_no_workload_says_why(reference, words):
    with pytest.raises(WorkloadError) as caught:
        load_workload(reference)
    assert words in str(caught.value)


def test_a_class_in_an_installed_module_is_a_workload(monkeypatch):
    monkeypatch.syspath_prepend(SMALL.parents[1])
    assert load_workload("workloads.small:Small").quality_name == "accuracy"


def test_a_file_may_import_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside.py").write_text(SMALL.read_text())
    (tmp_path / "mine.py").write_text("from beside import Small as Mine\n")
    assert load_workload(f"{tmp_path}/mine.py:Mine").build() is not None


def test_the_fingerprint_follows_the_source_and_not_the_place(tmp_path):
    prints = []
    for folder, text in (("a", ""), ("b", ""), ("c", "\n# changed\n")):
        path = tmp_path / folder / "small.py"
        path.parent.mkdir()
        path.write_text(SMALL.read_text() + text)
        reference = f"{path}:Small"
        prints.append(fingerprint(reference, load_workload(reference)))
    assert prints[0] == prints[1] != prints[2]


def test_the_fingerprint_follows_the_workload_that_one_derives_from(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    prints = []
    for folder, text in (("a", ""), ("b", ""), ("c", "\n# changed\n")):
        monkeypatch.delitem(sys.modules, "base", raising=False)
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "base.py").write_text(SMALL.read_text() + text)
        path = tmp_path / folder / "mine.py"
        path.write_text("import base\n\n\nclass Mine(base.Small):\n    pass\n")
        prints.append(fingerprint(f"{path}:Mine", load_workload(f"{path}:Mine")))
    assert prints[0] == prints[1] != prints[2]


def test_the_fingerprint_follows_the_identity():
    workload = load_workload(f"{SMALL}:Small")
    plain = fingerprint("small", workload)
    workload.identity = lambda: {"file": "abc"}
    assert fingerprint("small", workload) != plain


def test_blocks_are_found_for_a_workload_that_names_none():
    workload = load_workload(f"{SMALL}:FindsBlocks")
    model = workload.build()
    assert list(workload.blocks(model)) == list(model.layers)


def test_sizes_of_a_builtin_have_fingerprints_of_their_own():
    prints = {fingerprint(name, load_workload(name)) for name in ("byte-gpt:1m", "byte-gpt:5m")}
    assert len(prints) == 2


def test_a_batch_may_nest_tensors_in_any_way():
    batch = {"x": [torch.ones(3, 2), (torch.ones(3), "label")], "n": 4}
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"][0].device.type == moved["x"][1][0].device.type == "meta"
    assert moved["x"][1][1] == "label" and moved["n"] == 4
    assert first_tensor(batch).shape == (3, 2)


def test_a_batch_without_tensors_is_refused():
    with pytest.raises(WorkloadError, match="a batch must hold tensors, got list"):
        first_tensor([3])
