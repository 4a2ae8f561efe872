import subprocess
import sys

import pytest

from tests.trials.conftest import SMALL
from trials.errors import WorkloadError
from trials.references import require_reference, source_file


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
    with pytest.raises(WorkloadError) as caught:
        require_reference(reference)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "reference", ["byte-gpt", "byte-gpt:25m", f"{SMALL}:Any", "any.module:Any"]
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
