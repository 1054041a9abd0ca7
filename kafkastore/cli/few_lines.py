"""``--verbose``: everything line by line. Without it, a few of what is alike, and how many more."""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Item = TypeVar("Item")

#: So many of what is alike are printed without ``--verbose``.
FEW = 5


def verbose_option(function: FunctionT) -> FunctionT:
    """Add ``--verbose``, passed on as `verbose`."""
    return click.option(
        "--verbose", is_flag=True,
        help=f"Print everything line by line. Default: of what is alike, the first {FEW} and how "
        "many more there are.",
    )(function)


@dataclass(slots=True)
class Alike(Generic[Item]):
    """Things that are alike: those to be printed, how many more there are, and the last one."""

    shown: list[Item] = field(default_factory=list)
    more: int = 0
    last: Item | None = None

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.shown) + self.more


class Groups(Generic[Item]):
    """Puts together what is alike, and keeps no more in memory than what is to be printed.

    Parameters
    ----------
    kind_of : callable
        Returns what is equal for things that are alike.
    """

    def __init__(self, kind_of: Callable[[Item], Hashable]) -> None:
        self._kind_of = kind_of
        self._groups: dict[Hashable, Alike[Item]] = {}

    def __iter__(self) -> Iterator[Alike[Item]]:
        return iter(self._groups.values())

    def add(self, item: Item) -> None:
        """Put one thing to those that it is like."""
        group = self._groups.setdefault(self._kind_of(item), Alike())
        group.last = item
        if len(group.shown) < FEW:
            group.shown.append(item)
        else:
            group.more += 1


def alike(
    items: Iterable[Item], kind_of: Callable[[Item], Hashable], *, verbose: bool
) -> list[Alike[Item]]:
    """Put together what is alike.

    Parameters
    ----------
    items : iterable
        What is to be printed.
    kind_of : callable
        As for `Groups`.
    verbose : bool
        Whether everything is printed, in the order given.

    Returns
    -------
    list of Alike
        In the order of their first ones.
    """
    if verbose:
        return [Alike(list(items))]
    groups = Groups(kind_of)
    for item in items:
        groups.add(item)
    return list(groups)


def few_lines(lines: Iterable[tuple[Hashable, str]], *, verbose: bool) -> Iterator[str]:
    """Yield lines, of each kind a few.

    Parameters
    ----------
    lines : iterable of (kind, line)
        Kinds are compared for equality.
    verbose : bool
        Whether all are yielded.

    Yields
    ------
    str
        Behind the last one of a kind, how many more there are.
    """
    for group in alike(lines, lambda each: each[0], verbose=verbose):
        yield from (line for _, line in group.shown)
        if group.more:
            yield f"... and {group.more:,} more like these; --verbose lists all"
