"""How one thing that was looked at on a machine is told. Values only."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check went.

    ok       there, and it works
    warning  trials run; something else does not
    failed   trials cannot run
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: Of the thing.
        status: How it went.
        found: What is there, or what is wrong.
        remedy: What to do about it; empty when it is ok.
        is_users_fault: Whether it failed by what the user gave, and not by the machine.
        left_out: Values that no config of a study here may have for want of it.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
    is_users_fault: bool = False
    left_out: tuple[str, ...] = ()


def ok(name: str, found: str) -> Check:
    """Return that something is there and works."""
    return Check(name=name, status=Status.OK, found=found)


def warning(name: str, found: str, remedy: str) -> Check:
    """Return that something is lacking that trials can do without."""
    return Check(name=name, status=Status.WARNING, found=found, remedy=remedy)


def failed(name: str, found: str, remedy: str) -> Check:
    """Return that something is lacking that trials need."""
    return Check(name=name, status=Status.FAILED, found=found, remedy=remedy)
