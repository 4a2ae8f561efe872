"""How a person stops a study."""

from collections.abc import Iterator
from contextlib import contextmanager


class StopSwitch:
    """Pressed by a person: once to stop asking, twice to end what runs."""

    def __init__(self) -> None:
        """Start with nothing asked for, and nobody looking."""
        self.level = 0
        self.is_watched = self.was_watched = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Say that presses are looked at for as long as the context lasts."""
        self.is_watched = self.was_watched = True
        try:
            yield
        finally:
            self.is_watched = False

    def press(self) -> None:
        """Ask to stop, or to stop at once."""
        self.level += 1
