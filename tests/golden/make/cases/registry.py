"""The cases by name, with the versions that each is for."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..brokers import version_key
from ..case_context import CaseContext

CaseMaker = Callable[[CaseContext], None]


class Case(NamedTuple):
    """A case; `since` is inclusive, `before` exclusive, `part` the folder of its archives."""

    make: CaseMaker
    since: str
    before: str
    part: str

    def is_for(self, version: str) -> bool:
        """Say whether a version has this case."""
        return version_key(self.since) <= version_key(version) < version_key(self.before)


CASES: dict[str, Case] = {}


def case(
    *, since: str = "0.8", before: str = "100", part: str = ""
) -> Callable[[CaseMaker], CaseMaker]:
    """Register a function as the case of its name, with hyphens.

    Parameters
    ----------
    since, before : str
        The versions that have the case.
    part : str
        The folder, next to the manifest, of archives of their own with a manifest of their own.
    """

    def register(make: CaseMaker) -> CaseMaker:
        CASES[make.__name__.replace("_", "-")] = Case(make, since, before, part)
        return make

    return register
