import pickle
import re

import pytest

import autotune.errors
import search_spaces.errors
import trials.errors
from autotune.errors import REPLIES, Reply, StoreError, WorkersError, reply_to

MODULES = (search_spaces.errors, trials.errors, autotune.errors)
ERRORS = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind.__module__ == module.__name__
]
DOCUMENTED = {
    line[1]: Reply(exit_code=int(line[2]), http_status=int(line[3]))
    for line in re.finditer(r"(\w+Error) +exit (\d) +(\d{3})", autotune.errors.__doc__)
}


class OutOfDiskError(StoreError):
    """A subclass without an entry of its own."""


def test_all_errors_are_found():
    assert {"InvalidConfigError", "TrialError", "AutotuneError"} <= {e.__name__ for e in ERRORS}
    assert len(ERRORS) >= 19


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_in_the_table(kind):
    assert kind in REPLIES


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_in_the_docstring_of_the_tree(kind):
    assert re.search(rf"\b{kind.__name__}\b", autotune.errors.__doc__)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_error_is_in_the_docstring_of_its_module(module):
    own = [kind for kind in ERRORS if kind.__module__ == module.__name__]
    assert own and all(kind.__name__ in module.__doc__ for kind in own)


@pytest.mark.parametrize("kind", [kind for kind in REPLIES if kind.__name__ in DOCUMENTED])
def test_the_docstring_says_the_same_codes_as_the_table(kind):
    assert DOCUMENTED[kind.__name__] == REPLIES[kind]


def test_the_docstring_gives_codes_to_all_but_the_two_bases():
    assert {k.__name__ for k in REPLIES} - set(DOCUMENTED) == {"AutotuneError", "TrialError"}


@pytest.mark.parametrize(
    ("module", "base"),
    [(trials.errors, trials.errors.TrialError), (autotune.errors, autotune.errors.AutotuneError)],
)
def test_every_error_of_a_package_can_be_caught_by_its_base(module, base):
    assert all(issubclass(k, base) for k in ERRORS if k.__module__ == module.__name__)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_survives_pickling(kind):
    copy = pickle.loads(pickle.dumps(kind("what was wrong, and the remedy")))
    assert type(copy) is kind
    assert str(copy) == "what was wrong, and the remedy"


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_answered_by_its_own_entry(kind):
    assert reply_to(kind("text")) == REPLIES[kind]


def test_a_subclass_is_answered_like_its_nearest_base():
    assert reply_to(OutOfDiskError("full")) == REPLIES[StoreError]


@pytest.mark.parametrize("bug", [KeyError("x"), ValueError("x"), AssertionError()])
def test_a_bug_has_no_reply(bug):
    assert reply_to(bug) is None


def test_no_expected_error_ends_with_the_code_of_a_bug():
    expected = [kind for kind in REPLIES if kind is not autotune.errors.AutotuneError]
    assert all(REPLIES[kind].exit_code in (2, 3, 4, 5) for kind in expected)
    assert REPLIES[WorkersError] == Reply(exit_code=4, http_status=503)
