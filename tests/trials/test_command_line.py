import pytest

from trials.command_line import absolute_command, command_fingerprint, command_words
from trials.errors import WorkloadError
from trials.references import absolute_reference, require_reference, source_file


def test_words_are_split_as_a_shell_would():
    assert command_words("command:python3 'my train.py' --lr=0.1") == [
        *("python3", "my train.py", "--lr=0.1")
    ]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("command:", "names no program; write command:PROGRAM"),
        ("command:python3 'train.py", "cannot be split: No closing quotation"),
        (
            "command:no-such-program x",
            "no program 'no-such-program' that could be run; install it",
        ),
        ("command:./gone x", "no program './gone' that could be run; check the path"),
    ],
)
def test_what_names_no_program_is_refused_by_its_name_alone(reference, words):
    with pytest.raises(WorkloadError) as caught:
        require_reference(reference)
    assert words in str(caught.value)


def test_a_program_is_let_pass_and_has_no_source_of_a_class():
    require_reference("command:python3 any.py:Name")
    assert source_file("command:python3 any.py:Name") == ""


def test_paths_that_are_there_become_absolute_and_words_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("train", "data/set"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("my train.py", "run"):
        (tmp_path / file).touch()
    command = "command:./run 'my train.py' train data/set gone.py 'a b' $HOME"
    expected = [f"{tmp_path}/run", f"{tmp_path}/my train.py", "train", f"{tmp_path}/data/set"]
    assert command_words(absolute_command(command)) == [*expected, "gone.py", "a b", "$HOME"]
    assert absolute_reference(command) == absolute_command(command)


def test_a_program_of_the_path_stays_even_beside_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python3").touch()
    assert absolute_command("command:python3 -c 1") == "command:python3 -c 1"


def test_the_fingerprint_changes_with_the_text_and_with_files_in_it(tmp_path):
    script, data = tmp_path / "train.py", tmp_path / "data.bin"
    for file in (script, data):
        file.write_text("one")
    command = f"command:python3 {script} {data}"
    first = command_fingerprint(command)
    assert command_fingerprint(command) == first
    assert command_fingerprint(f"{command} --lr=1") != first
    for file in (script, data):
        file.write_text("two")
        assert command_fingerprint(command) != first
        file.write_text("one")
