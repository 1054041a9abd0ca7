"""The case of damaged indexes: a clean directory, and a broker on each damaged copy."""
from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copytree

from ..answers_file import modified_ms
from ..case_context import CaseContext
from ..questions import FAR_FUTURE, log_files
from .crashes import recover
from .registry import case

_RECORDS = 100
# Later versions treat all damage as 2.4.0 did; these kinds suffice to check that they still do.
_DAMAGE_OF_LATER_VERSIONS = (
    "missing-timeindex",
    "missing-index",
    "truncated-timeindex",
    "wrong-last-timeindex-entry",
    "too-high-last-timeindex-entry",
    "active-missing-timeindex",
)


@case(since="2.4")
def broken_index(context: CaseContext) -> None:
    """One clean directory; a broker restarted on copies with one kind of damage each."""
    context.start()
    context.create_topic("broken", segment_bytes=2500)
    timestamp, stamps = context.first_timestamp, []
    for _ in range(_RECORDS):
        timestamp += context.rng.choice((1, 100, 1500, 3000, -1500))
        stamps.append(timestamp)
    context.produce("broken", context.batches(stamps))
    partition = context.cluster.logs / "broken-0"
    starts = [int(path.stem) for path in log_files(partition)]
    ends = [*starts[1:], _RECORDS]
    maxima = [max(stamps[start:end]) for start, end in zip(starts, ends, strict=True)]
    # A segment whose time index is empty is dated by its mtime: put it below or above the truth.
    lags = (-5000, 12_000)
    mtimes = [maximum + lags[number % 2] for number, maximum in enumerate(maxima)]
    context.set_mtimes("broken-0", mtimes)
    context.ask_all()
    context.stop()
    context.save()
    clean, out = context.cluster, context.out
    for name in _damage_functions(partition, context.first_timestamp):
        if context.since(3) and name not in _DAMAGE_OF_LATER_VERSIONS:
            continue
        context.cluster = clean
        context.continue_on_copy(name)
        context.out = out.with_name(f"{out.name}-{name}")
        context.empty_out()
        _damage_and_save(context, name)
        context.try_variant("recovered", partial(recover, context, ["broken"]))


def _damage_and_save(context: CaseContext, name: str) -> None:
    """Damage the current copy and save it as ``logs``; queries come after the restart."""
    partition = context.cluster.logs / "broken-0"
    middle, active = _damaged_segments(partition)
    _damage_functions(partition, context.first_timestamp)[name]()
    damaged = Path(copytree(context.cluster.logs, context.out / "logs"))
    segment = active if "active" in name else middle
    context.extra["made"] = (
        f"logs/ is the clean directory of broken-index with the harm {name} done to segment"
        f" {segment}; answers-recovered.json is what the broker said and left after being started"
        " on it"
    )
    context.extra["mtimes_before_ms"] = modified_ms(damaged)


def _damaged_segments(partition: Path) -> tuple[str, str]:
    """Return the names of a segment in the middle and of the active one."""
    segments = [path.stem for path in log_files(partition)]
    return segments[len(segments) // 2], segments[-1]


def _damage_functions(partition: Path, first_timestamp: int) -> dict[str, Callable[[], None]]:
    """Return what can be done to a partition, by name."""
    middle, active = _damaged_segments(partition)
    time_index, offset_index = (
        partition / f"{middle}{suffix}" for suffix in (".timeindex", ".index")
    )
    too_low = (first_timestamp - 5).to_bytes(8, "big") + (1).to_bytes(4, "big")
    too_high = FAR_FUTURE.to_bytes(8, "big") + (1 << 20).to_bytes(4, "big")
    beyond_the_file = (0).to_bytes(4, "big") + (1 << 30).to_bytes(4, "big")
    return {
        "missing-timeindex": time_index.unlink,
        "missing-index": offset_index.unlink,
        "missing-all-indexes": partial(_remove_all_indexes, partition),
        "truncated-timeindex": partial(_shorten, time_index, 5),
        "truncated-index": partial(_shorten, offset_index, 3),
        "wrong-last-timeindex-entry": partial(_overwrite_end, time_index, too_low),
        "too-high-last-timeindex-entry": partial(_overwrite_end, time_index, too_high),
        "wrong-last-index-entry": partial(_overwrite_end, offset_index, beyond_the_file),
        "empty-timeindex": partial(os.truncate, time_index, 0),
        "active-missing-timeindex": (partition / f"{active}.timeindex").unlink,
        "active-zero-padded": partial(_pad, partition / active),
    }


def _remove_all_indexes(partition: Path) -> None:
    """Remove every offset and time index."""
    for path in partition.iterdir():
        if path.suffix in (".index", ".timeindex"):
            path.unlink()


def _shorten(path: Path, count: int) -> None:
    """Cut bytes off the end."""
    os.truncate(path, path.stat().st_size - count)


def _overwrite_end(path: Path, entry: bytes) -> None:
    """Put other bytes in the place of the last ones."""
    path.write_bytes(path.read_bytes()[: -len(entry)] + entry)


def _pad(segment: Path) -> None:
    """Append ten empty entries to both indexes."""
    for suffix, size in ((".index", 80), (".timeindex", 120)):
        path = segment.with_name(segment.name + suffix)
        path.write_bytes(path.read_bytes() + bytes(size))
