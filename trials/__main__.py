"""Run one trial from a spec: ``python -m trials spec.json``, or ``-`` for standard input.

Prints the measurement as JSON. Needs torch and nothing of the service. Exit 0 whatever the
outcome, 2 for a spec that cannot be read.
"""

import sys
from pathlib import Path

from trials.errors import SpecError
from trials.host import TrialHost
from trials.spec import TrialSpec


def main(arguments: list[str]) -> int:
    """Run the spec that the only argument names."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m trials SPEC.json   (- reads standard input)\n")
        return 2
    try:
        text = sys.stdin.read() if arguments[0] == "-" else Path(arguments[0]).read_text()
        spec = TrialSpec.from_json(text)
    except (OSError, SpecError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    host = TrialHost()
    try:
        sys.stdout.write(host.run(spec).to_json() + "\n")
    finally:
        host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
