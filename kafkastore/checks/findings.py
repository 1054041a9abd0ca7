"""Findings of a check: location, severity, consequence and remedy."""
from __future__ import annotations

import enum
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import NotAFileError
from kafkastore.paths import to_path


class Severity(enum.StrEnum):
    """The severity of a finding; compare with `is_at_least`.

    `STYLE`: no wrong answers. `SLOW`: a broker's start or a search takes longer. `WRONG_ANSWERS`:
    some lookup or read returns a wrong result. `DATA_LOSS_RISK`: a broker would truncate or delete
    records.
    """

    STYLE = "style"
    SLOW = "slow"
    WRONG_ANSWERS = "wrong-answers"
    DATA_LOSS_RISK = "data-loss-risk"

    def is_at_least(self, other: Severity) -> bool:
        """Return whether this severity is equal to or higher than `other`."""
        order = list(Severity)
        return order.index(self) >= order.index(other)


class Finding(NamedTuple):
    """One problem that a check found.

    Attributes
    ----------
    severity : Severity
        How bad it is.
    path : Path
        The file, or the directory where a file is missing.
    position : int or None
        Byte position in the file; None for the whole file.
    what : str
        The problem.
    consequence : str
        Its effect on a broker or a reader.
    remedy : str
        The command that repairs it, or an instruction.
    """

    severity: Severity
    path: Path
    position: int | None
    what: str
    consequence: str
    remedy: str


def kind_of(finding: Finding) -> tuple[Severity, str]:
    """Return a key that findings share if they differ only in numbers and paths."""
    return finding.severity, re.sub(r"\d+", "#", finding.what)


def command(name: str, directory: Path) -> str:
    """Return the shell command that repairs a partition, with the path quoted.

    `name` includes options, for example ``"repair --like keep"``.
    """
    return f"kafkastore {name} {shlex.quote(str(directory))}"


def no_file(error: NotAFileError) -> Finding:
    """Report a path that is not a regular file."""
    return Finding(
        Severity.DATA_LOSS_RISK,
        to_path(error.path),
        None,
        f"it is {error.kind} and not a regular file",
        "a broker fails on it, or goes on as if the file were missing",
        "move it away; look for the true file first",
    )
