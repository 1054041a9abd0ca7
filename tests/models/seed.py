"""The seed of all that this run draws, and how much of what could be tried it tries.

``conftest.py`` sets both: `--randomly-seed` repeats a run, `--in-full` draws nothing where all can
be tried.
"""
import os
import random
from collections.abc import Sequence
from typing import TypeVar

SEED = int(os.environ["KAFKASTORE_SEED"])
IN_FULL = "KAFKASTORE_IN_FULL" in os.environ

T = TypeVar("T")


def some(things: Sequence[T], count: int, of: object = "") -> list[T]:
    """So many of them by the seed and a name, in their order; all of them in full."""
    if IN_FULL or len(things) <= count:
        return list(things)
    chosen = random.Random(f"{SEED} {of}").sample(range(len(things)), count)
    return [things[number] for number in sorted(chosen)]


def one_in(count: int) -> int:
    """Of how many one is tried; each of them in full."""
    return 1 if IN_FULL else count


def examples(count: int) -> int:
    """How many hypothesis draws: a quarter of so many."""
    return -(-count // one_in(4))
