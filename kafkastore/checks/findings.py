"""What a check found: where, what it means, and what mends it."""
from __future__ import annotations

import enum
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import NotAFileError
from kafkastore.paths import to_path


class Severity(enum.StrEnum):
    """How bad a finding is; compare with `is_at_least`.

    `STYLE`: no answer is wrong for it. `SLOW`: a broker's start or a search takes longer.
    `WRONG_ANSWERS`: some lookup or read goes wrong. `DATA_LOSS_RISK`: a broker would cut or delete
    records.
    """

    STYLE = "style"
    SLOW = "slow"
    WRONG_ANSWERS = "wrong-answers"
    DATA_LOSS_RISK = "data-loss-risk"

    def is_at_least(self, other: Severity) -> bool:
        """Whether this is as bad as another, or worse."""
        order = list(Severity)
        return order.index(self) >= order.index(other)


class Finding(NamedTuple):
    """One thing that is not as it should be.

    Attributes
    ----------
    severity : Severity
    path : Path
        The file, or the directory where a file is missing.
    position : int or None
        Byte position in the file.
    what : str
        What was found.
    consequence : str
        What a broker or a reader makes of it.
    remedy : str
        The command that mends it, or what to do.
    """

    severity: Severity
    path: Path
    position: int | None
    what: str
    consequence: str
    remedy: str


def kind_of(finding: Finding) -> tuple[Severity, str]:
    """Return what findings have in common that differ in nothing but numbers and places."""
    return finding.severity, re.sub(r"\d+", "#", finding.what)


def command(name: str, directory: Path) -> str:
    """Return the command of this package that mends a partition, as it can be pasted.

    Parameters
    ----------
    name : str
        With its options, such as ``"repair --like keep"``.
    directory : Path
        Of the partition.
    """
    return f"kafkastore {name} {shlex.quote(str(directory))}"


def no_file(error: NotAFileError) -> Finding:
    """Tell of a name that stands for no file."""
    return Finding(
        Severity.DATA_LOSS_RISK,
        to_path(error.path),
        None,
        f"it is {error.kind} and not a regular file",
        "a broker fails on it, or goes on as if the file were missing",
        "move it away; look for the true file first",
    )
