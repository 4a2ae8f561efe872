import subprocess
import sys

import pytest

from tests.trials.conftest import SMALL
from trials.errors import WorkloadError
from trials.references import (
    absolute_reference,
    is_users,
    preloads,
    require_reference,
    source_file,
)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("byte-gpt:3m", "byte-gpt has no size '3m'; its sizes are 1m, 5m, 25m, 85m, 350m"),
        ("byte-gtp:1m", "no workload 'byte-gtp:1m'; did you mean 'byte-gpt'"),
        ("gone.py:Mine", "no workload file 'gone.py'; check the path"),
        ("gone.py", "no workload file 'gone.py'; check the path"),
        ("gone/mine:Mine", "no workload file 'gone/mine'; check the path"),
        ("/tmp:Mine", "'/tmp' is a folder; name a file in it, as path/to/file.py:Name"),
        ("folder", "'folder' is a folder; name a file in it, as path/to/file.py:Name"),
        ("folder.py:Mine", "'folder.py' is a folder; name a file in it"),
        ("notes.txt:Mine", "'notes.txt' is no Python file; give path/to/file.py:Name"),
        ("mine.py", "'mine.py' names no class; write mine.py:Name"),
        ("mine.py:", "'mine.py:' names no class; write mine.py:Name"),
        ("some.package", "'some.package' names no class; write some.package:Name"),
        ("vision:huge", "vision has no size 'huge'; its sizes are tiny, small, base"),
        ("huggingface", "huggingface names no model; write huggingface:PATH, the path of a"),
        ("huggingface:?sequence=8", "huggingface names no model"),
        ("huggingface:gone", "no such path 'gone': give huggingface:PATH"),
        ("huggingface:meta/gone", "on this machine; nothing is downloaded"),
        ("huggingface:folder", "the folder 'folder' has no config.json; give huggingface:PATH"),
        (
            "huggingface:notes.txt?length=8",
            "no option 'length'; known: packing, sequence, task",
        ),
        ("huggingface:notes.txt?packin=on", "no option 'packin'; did you mean 'packing'? known:"),
        ("huggingface:notes.txt?text", "option 'text' has no value; write text=VALUE once"),
        ("huggingface:notes.txt?sequence=8&sequence=9", "option 'sequence' is given twice"),
        ("huggingface:notes.txt?task=gan", "task='gan': must be one of causal, masked, seq2seq"),
        ("huggingface:notes.txt?packing=yes", "packing='yes': must be on (windows of the whole"),
        ("huggingface:notes.txt?text=gone", "text='gone' does not exist; give a text file"),
        ("huggingface:notes.txt?text=", "option 'text' has no value; write text=VALUE once"),
        ("huggingface:notes.txt?text=folder", "text='folder' is a folder; give a text file"),
        ("huggingface:notes.txt?text=notes.txt", "text='notes.txt' is empty; give a file with"),
        ("huggingface:notes.txt?text=huge.txt", "has 257 MiB, the most is 256 MiB; give a part"),
        (
            "huggingface:notes.txt?sequence=",
            "option 'sequence' has no value; write sequence=",
        ),
        ("huggingface:notes.txt?sequence=0", "sequence='0': must be a whole number of tokens"),
        ("huggingface:notes.txt?sequence=1e3", "sequence='1e3': must be a whole number"),
    ],
)
def test_what_names_no_workload_is_refused_by_its_name_alone(
    tmp_path, monkeypatch, reference, words
):
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "folder.py"):
        (tmp_path / folder).mkdir()
    for file in ("mine.py", "notes.txt"):
        (tmp_path / file).touch()
    with (tmp_path / "huge.txt").open("wb") as huge:
        huge.truncate(257 * 2**20)
    with pytest.raises(WorkloadError) as caught:
        require_reference(reference)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "reference",
    [
        *("byte-gpt", "byte-gpt:25m", "vision", "vision:base", f"{SMALL}:Any", "any.module:Any"),
        *(f"huggingface:{SMALL}", f"huggingface:{SMALL}?sequence=16"),
        f"huggingface:{SMALL}?task=masked&text={SMALL}&packing=off&sequence=16",
    ],
)
def test_what_may_name_a_workload_is_let_pass(reference):
    require_reference(reference)


def test_no_torch_is_loaded_to_refuse():
    code = "import sys, trials.references; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_file_of_a_workload_is_known_once_it_is_imported():
    assert source_file(f"{SMALL}:Small") == str(SMALL)
    assert source_file("tests.trials.test_references:Any") == __file__
    assert source_file("not.imported:Any") == source_file("byte-gpt:1m") == ""


@pytest.mark.parametrize(
    ("reference", "absolute"),
    [
        ("mine.py:Mine", "{here}/mine.py:Mine"),
        ("huggingface:llama?sequence=8", "huggingface:{here}/llama?sequence=8"),
        ("huggingface:a?text=b+%41.txt&packing=off", "{hf}a?text={here}/b+%41.txt&packing=off"),
        ("huggingface:../llama/config.json", "huggingface:{above}/llama/config.json"),
        ("byte-gpt:5m", "byte-gpt:5m"),
        ("some.module:Name", "some.module:Name"),
    ],
)
def test_an_absolute_reference_means_the_same_anywhere(tmp_path, monkeypatch, reference, absolute):
    monkeypatch.chdir(tmp_path)
    hf = f"huggingface:{tmp_path}/"
    expected = absolute.format(here=tmp_path, above=tmp_path.parent, hf=hf)
    assert absolute_reference(reference) == expected


def test_a_path_of_a_model_is_no_class_of_the_users():
    assert not is_users("huggingface:a/b.py:Name") and is_users("a/b.py:Name")


def test_a_host_imports_what_models_of_hugging_face_need():
    assert preloads("huggingface:model?sequence=8") == ("trials.preload_transformers",)
    assert preloads("byte-gpt") == preloads("mine.py:Mine") == ()
