"""The command line: parse, call one function, print.

Loads neither torch nor ray, nor anything else that ``autotune --help`` does not need.
"""

import sys

from autotune.cli import route_command as route_command
from autotune.cli import track_command as track_command
from autotune.cli.commands import app

BUG = 1


def main() -> None:
    """Run the command that the arguments name, and exit with the code of its error."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run a command line and return its exit code.

    A user's mistake prints one message. Anything else is a bug, and its traceback is logged.
    """
    try:
        app(arguments, prog_name="autotune")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else BUG
    except BrokenPipeError:
        return BUG
    except Exception as error:
        return _explain(error)
    return 0


def _explain(error: Exception) -> int:
    import logging

    from autotune.errors import reply_to

    reply = reply_to(error)
    if reply is None:
        logging.getLogger(__name__).error("this is a bug in autotune", exc_info=error)
        return BUG
    sys.stderr.write(f"error: {error}\n")
    return reply.exit_code
