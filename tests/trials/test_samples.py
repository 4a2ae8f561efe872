import torch

from trials.samples import Lines, Windows, byte_ids


def test_windows_are_every_run_of_the_text_and_no_more():
    windows = Windows(byte_ids(b"abcde"), 3)
    found = [bytes(windows[place].tolist()) for place in range(len(windows))]
    assert found == [b"abc", b"bcd", b"cde"]
    assert windows[0].dtype == torch.int64 and len(Windows(byte_ids(b"ab"), 3)) == 0


def test_lines_are_cut_and_left_out_where_nothing_can_be_told():
    lines = Lines([byte_ids(text) for text in (b"a", b"ab", b"abcdef")], 4)
    assert [bytes(lines[place].tolist()) for place in range(len(lines))] == [b"ab", b"abcd"]


def test_the_longest_come_first_and_again_where_there_are_too_few():
    lines = Lines([byte_ids(b"a" * length) for length in (2, 5, 3)], 9)
    assert lines.longest(2) == [1, 2] and lines.longest(5) == [1, 2, 0, 1, 2]
    windows = Windows(byte_ids(b"abcd"), 3)
    assert windows.longest(5) == [0, 1, 0, 1, 0]
