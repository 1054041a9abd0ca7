"""``--verbose`` prints every line; without it, a few of each kind."""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Item = TypeVar("Item")

#: How many items of one kind are printed without ``--verbose``.
MAX_SHOWN = 5


def verbose_option(function: FunctionT) -> FunctionT:
    """Add ``--verbose``, passed as `verbose`."""
    return click.option(
        "--verbose", is_flag=True,
        help=f"Print every line. Default: the first {MAX_SHOWN} of each kind, and how many others.",
    )(function)


@dataclass(slots=True)
class ItemGroup(Generic[Item]):
    """Items of one kind: those to print, how many more there are, and the last one."""

    shown: list[Item] = field(default_factory=list)
    more: int = 0
    last: Item | None = None

    @property
    def count(self) -> int:
        """Return the number of all items."""
        return len(self.shown) + self.more


class ItemGroups(Generic[Item]):
    """ItemGroups items of one kind, and keeps only the items to print.

    `kind_of` returns a value that is equal for items of one kind.
    """

    def __init__(self, kind_of: Callable[[Item], Hashable]) -> None:
        self._kind_of = kind_of
        self._groups: dict[Hashable, ItemGroup[Item]] = {}

    def __iter__(self) -> Iterator[ItemGroup[Item]]:
        return iter(self._groups.values())

    def add(self, item: Item) -> None:
        """Add an item to its group."""
        group = self._groups.setdefault(self._kind_of(item), ItemGroup())
        group.last = item
        if len(group.shown) < MAX_SHOWN:
            group.shown.append(item)
        else:
            group.more += 1


def group_items(
    items: Iterable[Item], kind_of: Callable[[Item], Hashable], *, verbose: bool
) -> list[ItemGroup[Item]]:
    """Group items by kind, in the order of the first item of each kind.

    With `verbose` every item is printed, in the given order.
    """
    if verbose:
        return [ItemGroup(list(items))]
    groups = ItemGroups(kind_of)
    for item in items:
        groups.add(item)
    return list(groups)


def group_lines(lines: Iterable[tuple[Hashable, str]], *, verbose: bool) -> Iterator[str]:
    """Yield a few lines of each kind, then how many more there are.

    `lines` are pairs of kind and line; with `verbose` all lines are yielded.
    """
    for group in group_items(lines, lambda each: each[0], verbose=verbose):
        yield from (line for _, line in group.shown)
        if group.more:
            yield f"... and {group.more:,} more like these; --verbose lists all"
