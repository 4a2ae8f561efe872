"""What may be wrong with a table, or with what it is made of."""


class TableError(ValueError):
    """A table, or the log of its trials, cannot be used; the message says where and why."""
