"""The command line, ``kafkastore``, also ``python -m kafkastore.cli``.

Exit codes: 0 success, 1 problems found, 2 wrong usage or unreadable input, 130 interrupted.
An error is one sentence on stderr. ``docs/cli.md`` describes every command and its JSON.
"""
from __future__ import annotations

import os
import sys

from kafkastore.cli import interrupts


def main() -> None:
    """Run the command line and exit."""
    # Set first: importing the rest takes longer than many commands run.
    interrupts.end_the_process()
    _open_closed_streams()
    # numpy would start a thread for each core, for linear algebra that no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kafkastore.cli.command_list import cli

    code = cli.main(prog_name="kafkastore", standalone_mode=False)
    interrupts.end_the_process()  # also while Python shuts down and runs code of other libraries
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device for closed streams: no file gets their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":
    main()
