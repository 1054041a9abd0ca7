"""The seed of a run's random choices, and whether the run tries all cases.

``conftest.py`` sets both: `--randomly-seed` repeats a run, `--in-full` makes no random
choice where all cases can be tried.
"""
import os
import random
from collections.abc import Sequence
from typing import TypeVar

SEED = int(os.environ["KAFKASTORE_SEED"])
IN_FULL = "KAFKASTORE_IN_FULL" in os.environ

T = TypeVar("T")


def some(things: Sequence[T], count: int, of: object = "") -> list[T]:
    """A number of items chosen by the seed and a name, in their order; all in a full run."""
    if IN_FULL or len(things) <= count:
        return list(things)
    chosen = random.Random(f"{SEED} {of}").sample(range(len(things)), count)
    return [things[number] for number in sorted(chosen)]


def one_in(count: int) -> int:
    """Return `count`, to try one of this many items; 1 in a full run, to try all."""
    return 1 if IN_FULL else count


def examples(count: int) -> int:
    """The number of examples that hypothesis draws: a sixth of the full number."""
    return -(-count // one_in(6))
