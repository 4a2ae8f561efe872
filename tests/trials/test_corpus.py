import pytest

from trials.corpus import read_text


@pytest.mark.parametrize(
    ("text", "held_out"),
    [
        ("line\n" * 20, "line\n"),
        ("a\n" * 9 + "b" * 30, "b" * 30),
        ("one line of words", "ds"),
        ("first\n" + "second" * 20 + "\n", "second" * 20 + "\n"),
    ],
    ids=["lines", "long end", "one line", "long last line"],
)
def test_the_end_of_a_file_is_held_out_in_whole_lines(tmp_path, text, held_out):
    file = tmp_path / "text.txt"
    file.write_text(text)
    corpus = read_text(file)
    assert corpus.held_out.decode() == held_out
    assert (corpus.training + corpus.held_out).decode() == text
