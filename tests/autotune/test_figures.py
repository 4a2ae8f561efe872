import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.figures import rounded_up, shown_bytes, shown_number, shown_shortage, shown_usd
from autotune.settings import parse_bytes
from tests.factories import GIB, MIB


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (12 * 1024, "12 KiB"),
        (310 * MIB, "310 MiB"),
        (1000 * MIB, "0.977 GiB"),
        (80 * GIB, "80 GiB"),
        (5000 * GIB, "4.88 TiB"),
        (2 * 10**15, "1819 TiB"),
    ],
)
def test_bytes_are_shown_in_three_digits(size, text):
    assert shown_bytes(size) == text


@pytest.mark.parametrize(
    ("needed", "budget", "words"),
    [
        (600 * MIB + 1, 600 * MIB, "needs more than the 600 MiB that it has"),
        (5452599, int(5.2 * MIB), "needs at least 5.21 MiB, has 5.2 MiB"),
        (int(5.174 * MIB), 5 * MIB, "needs at least 5.18 MiB, has 5 MiB"),
        (10 * MIB + 12 * 1024, 10 * MIB, "needs at least 10.1 MiB, has 10 MiB"),
        (1112 * MIB, 600 * MIB, "needs at least 1112 MiB, has 600 MiB"),
        (103 * GIB, 70 * GIB, "needs at least 103 GiB, has 70 GiB"),
    ],
)
def test_a_need_is_rounded_up_until_it_differs_from_what_there_is(needed, budget, words):
    assert shown_shortage(needed, budget) == words


@given(st.integers(MIB, 2**45), st.integers(2, 2**45))
def test_the_two_numbers_of_a_shortage_never_contradict_each_other(budget, missing):
    needed, has = re.findall(r"([\d.]+) [KMGT]iB", shown_shortage(budget + missing, budget))
    assert float(needed) > float(has)


@given(st.integers(MIB, 2**52))
def test_a_rounded_up_size_is_a_flag_above_it(size):
    assert size < parse_bytes(rounded_up(size)) <= 1.2 * size + 2


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 4, "0"),
        (190.3, 2, "190"),
        (13052.2, 4, "13052"),
        (0.0000213, 2, "0.000021"),
        (9.99996, 4, "10"),
        (-4.25, 2, "-4.2"),
        (0.0192949, 4, "0.01929"),
    ],
)
def test_a_number_has_its_digits_and_no_exponent(value, digits, text):
    assert shown_number(value, digits) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0"), (0.00000321, "$0.0000032"), (0.5, "$0.5"), (1234.5, "$1,234.50")]
)
def test_money_is_never_rounded_to_nothing(usd, text):
    assert shown_usd(usd) == text
