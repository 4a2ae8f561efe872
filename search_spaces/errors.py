"""What can be wrong with a configuration or a space.

InvalidConfigError      a knob, a value or a combination that cannot be tried
 +- EmptySpaceError     no combination of the space may be tried
"""


class InvalidConfigError(ValueError):
    """A knob, a value or a combination of values that cannot be tried."""


class EmptySpaceError(InvalidConfigError):
    """A space of which no combination may be tried."""
