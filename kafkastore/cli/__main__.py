"""The command line: ``kafkastore COMMAND PATH… [options]``, also ``python -m kafkastore.cli``.

Exit codes: 0 fine, 1 problems found, 2 wrong use or input that can't be read, 130 interrupted.
What goes wrong is one sentence on stderr. ``docs/cli.md`` describes every command and its JSON.
"""
from __future__ import annotations

import sys

from kafkastore.cli import interrupts


def main() -> None:
    """Run the command line and exit."""
    # Before anything else is imported: that takes longer than many commands.
    interrupts.end_the_process()
    from kafkastore.cli.commands import cli

    code = cli.main(prog_name="kafkastore", standalone_mode=False)
    interrupts.end_the_process()  # also while Python ends, which calls code of others
    sys.exit(code)


if __name__ == "__main__":
    main()
