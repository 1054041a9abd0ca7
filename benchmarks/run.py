"""Compare kafkastore with its peers on the same files, and print one table.

usage:  run.py [--only MEASURE ...] [--sets SET ...] [--warm-up N] [--rounds N] [--work DIR]
        run.py spark ...    the data source compared with Spark's Kafka source: see spark.py
        run.py serve ...    the server compared with a broker: see serving.py

README.md says what is measured. Every sample goes to DIR/bench.jsonl too.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from build_peers import PEER_COMMANDS, CannotRun, make_data
from contestant import Contestant, Failed
from data import (
    INDEXES,
    METADATA,
    SEGMENTS,
    TIMES,
    WIDE,
    WIDER,
    log_path,
    read_from_disk,
    targets_path,
)

OURS = "kafkastore"


class Measure(NamedTuple):
    """A measure of kafkastore on a data set, and the peers to compare with.

    `bars` gives the required speed relative to each peer; None means no requirement. A peer is
    named by its name and its measure. `most_seconds` limits the time of a round of kafkastore,
    `least_rate` asks for so many records a second of CPU time.
    Work that a process does once, at its start, is measured in a new process each round. Work of
    several threads is compared by wall time.
    """

    name: str
    data_set: str
    bars: dict[str, float | None]
    is_at_start: bool = False
    is_parallel: bool = False
    most_seconds: float | None = None
    least_rate: float | None = None


#: A check must take at most 1.5 times as long as rebuilding the indexes.
VERIFY_BARS = {"kafka-dump deep": 4, "kafkastore dry-run": 0.67}
#: From the file as kafkastore, and with the file already in memory.
RUST = {"rust decode": 1.25, "rust decode-memory": None}
AIOKAFKA = {"aiokafka decode": 2.5, "aiokafka decode-memory": None}
COMPRESSED = [name for name in SEGMENTS if name.startswith("c-")]
MEASURES = [
    Measure("scan", "a", {"kafka recover": 2}),
    Measure("scan", "b", {"kafka recover": 2.5}),
    Measure("scan", "d", {"kafka recover": 25}),
    Measure("recover", "a", {"kafka recover": 2}),
    Measure("recover", "b", {"kafka recover": 2}),
    Measure("recover", "d", {"kafka recover": 20}),
    Measure("reindex", "a", {"kafka recover": 2}),
    Measure("reindex", "b", {"kafka recover": 2}),
    Measure("reindex", "d", {"kafka recover": 20}),
    Measure("append", "a", {"kafka append": 1}),
    Measure("append", "b", {"kafka append": 1}),
    Measure("decode", "a", {"kafka decode": 2.5, **RUST, "rust decode": 2.5, **AIOKAFKA}),
    Measure("decode", "b", {"kafka decode": 2, **RUST, **AIOKAFKA}),
    Measure("decode", "d", {"kafka decode": 3, **RUST, "rust decode": 2.5, **AIOKAFKA}),
    *(Measure("decode", name, {"kafka decode": 1.25, **RUST}) for name in COMPRESSED),
    Measure("decode-views", "b", RUST),
    Measure("decode-two-columns", "b", {"kafkastore decode": 1.7}),
    *(Measure("cat-json", name, {}, least_rate=500_000) for name in "ab"),
    *(
        Measure(f"{each}-threads", name, {f"kafkastore {each}-one": 1.8}, is_parallel=True)
        for each in ("to-arrow", "cat-parquet")
        for name in ("a", "b", *COMPRESSED)
    ),
    Measure("verify-threads", "b", {"kafkastore verify-one": 1.6}, is_parallel=True),
    *(Measure("latest", name, {}, least_rate=500_000) for name in "ab"),
    Measure("lookup-offset", INDEXES, {"kafka lookup-offset": 2.5}),
    Measure("lookup-time", INDEXES, {"kafka lookup-time": 2.5}),
    *(Measure("find-time", name, {"kafka find-time": 2}) for name in "abe"),
    *(Measure("find-times", name, {"kafka find-times": 5}) for name in "abe"),
    Measure("find-time-store", WIDER, {}, most_seconds=2),
    *(Measure("verify", name, VERIFY_BARS) for name in "abd"),
    *(Measure("verify", name, {"kafka-dump timeindex": 4}) for name in ("b-32", "b-64")),
    Measure("open", WIDE, {"kafka open": 10}, is_at_start=True),
    Measure("open-unclean", WIDE, {"kafka open-unclean": 5}, is_at_start=True),
    Measure("serve-start", WIDE, {}, most_seconds=1),
    Measure("serve-start", WIDER, {}, most_seconds=3),
    Measure("replay", METADATA, {"kafka replay": 1}, is_at_start=True, most_seconds=5),
    Measure(
        "replay-snapshot", METADATA, {"kafka replay-snapshot": 1}, is_at_start=True, most_seconds=3
    ),
    Measure("crc", "b", {"kafka crc": None}),
]


class Samples(NamedTuple):
    """The results of one side, and the seconds of each round."""

    who: str
    found: dict[str, Any]
    cpu: list[float]
    wall: list[float]


def compare(
    commands: dict[str, list[str]], warm_up: int, rounds: int, *, is_at_start: bool
) -> list[Samples]:
    """Run the same work on several sides in turn.

    Parameters
    ----------
    commands : dict
        By side; the first is kafkastore.
    warm_up, rounds : int
        Rounds that do not count, and those that do.
    is_at_start : bool
        Whether each round is the first of a new process.

    Raises
    ------
    Failed
        If a side ends, or if results differ: a wrong result has no time. A peer may report more
        than kafkastore, but every value that kafkastore reports must be equal.
    """
    with ExitStack() as stack:
        sides = {
            who: stack.enter_context(closing(Contestant(command)))
            for who, command in commands.items()
        }

        def took(who: str) -> dict[str, Any]:
            if not is_at_start:
                return sides[who].ask("time")
            with closing(Contestant(commands[who])) as side:
                return side.ask("time")

        all_samples = [Samples(who, side.ask("check"), [], []) for who, side in sides.items()]
        ours, *peers = all_samples
        for peer in peers:
            for name, value in ours.found.items():
                other = peer.found.get(name)
                if other != value:
                    raise Failed(f"{name}: {value} by {ours.who}, {other} by {peer.who}")
        if is_at_start:
            stack.close()
        sums: dict[str, int] = {}
        for number in range(warm_up + rounds):
            for samples in all_samples:
                answer = took(samples.who)
                if sums.setdefault(samples.who, answer["sum"]) != answer["sum"]:
                    raise Failed(f"{samples.who} gave another result in round {number}")
                if number >= warm_up:
                    samples.cpu.append(answer["cpu"])
                    samples.wall.append(answer["wall"])
    return all_samples


LINE = "{:19} {:9} {:22} {:>17} {:>17} {:>7}  {}"
HEADING = LINE.format(
    "measure", "set", "who", "CPU min/med ms", "wall min/med ms", "speed", "wanted"
)


def _milliseconds(seconds: list[float]) -> str:
    return f"{min(seconds) * 1e3:.1f} / {median(seconds) * 1e3:.1f}"


def lines(measure: Measure, all_samples: list[Samples]) -> list[str]:
    """Show a comparison: kafkastore's line, then each peer's with how much faster we are.

    Speeds compare the least CPU times: what else runs on a machine only adds to them. Of work of
    several threads they compare wall times, which need a quiet machine.
    """
    ours = all_samples[0]
    shown = []
    for samples in all_samples:
        speed, verdict = "", ""
        if samples is ours and measure.most_seconds is not None:
            is_met = min(samples.wall) <= measure.most_seconds
            verdict = f"{measure.most_seconds:g} s: {'ok' if is_met else 'ABOVE'}"
        elif samples is ours and measure.least_rate is not None:
            rate = samples.found["records"] / min(samples.cpu)
            speed = f"{rate / 1e6:.2f}M/s"
            is_met = rate >= measure.least_rate
            verdict = f"{measure.least_rate / 1e6:g}M/s: {'ok' if is_met else 'BELOW'}"
        elif samples is not ours:
            ratio = min(samples.cpu) / min(ours.cpu)
            if measure.is_parallel:
                ratio = min(samples.wall) / min(ours.wall)
            speed = f"{ratio:.2f}x"
            bar = measure.bars[samples.who]
            if bar is not None:
                verdict = f"{bar}x: {'ok' if ratio >= bar else 'BELOW'}"
        shown.append(
            LINE.format(
                measure.name,
                measure.data_set,
                samples.who,
                _milliseconds(samples.cpu),
                _milliseconds(samples.wall),
                speed,
                verdict,
            ).rstrip()
        )
    return shown


class Commands:
    """The command of each side; a peer is built when first needed."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._peers: dict[str, list[str]] = {
            OURS: [sys.executable, str(Path(__file__).with_name("ours.py"))]
        }
        self._read: set[Path] = set()

    def command(self, side: str, data_set: str) -> list[str]:
        """Return the command of a side, as in ``rust decode``.

        Raises
        ------
        CannotRun
            If the peer, or the data set, cannot be made here.
        """
        who, measure = side.split()
        if who not in self._peers:
            self._peers[who] = PEER_COMMANDS[who](self.work)
        log = log_path(self.work / "data", data_set, partial(make_data, self.work))
        if log not in self._read:
            read_from_disk(log.parent.parent)
            self._read.add(log)
        command = [*self._peers[who], measure, str(log)]
        if data_set == INDEXES or measure in TIMES:
            command.append(str(targets_path(log, measure)))
        return command


def sides_of(
    measure: Measure, commands: Commands, show: Callable[[str], None]
) -> dict[str, list[str]]:
    """Return the commands of all sides, and show why a peer is left out."""
    sides = {OURS: commands.command(f"{OURS} {measure.name}", measure.data_set)}
    for peer in measure.bars:
        try:
            sides[peer] = commands.command(peer, measure.data_set)
        except CannotRun as reason:
            show(f"{measure.name:19} {measure.data_set:9} {peer} not run: {reason}")
    return sides


def main() -> int:
    if sys.argv[1:2] == ["spark"]:
        import spark

        return spark.main(sys.argv[2:])
    if sys.argv[1:2] == ["serve"]:
        import serving

        return serving.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="measures, or prefixes of names")
    parser.add_argument("--sets", nargs="+", default=[], help="data sets")
    parser.add_argument("--warm-up", type=int, default=3, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"))
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # one core, the same for all; processes inherit it
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    arguments.work.mkdir(parents=True, exist_ok=True)
    commands = Commands(arguments.work)
    show = partial(print, flush=True)
    failed = False
    show(HEADING)
    with (arguments.work / "bench.jsonl").open("w") as out:
        for measure in MEASURES:
            if arguments.only and not measure.name.startswith(tuple(arguments.only)):
                continue
            if arguments.sets and measure.data_set not in arguments.sets:
                continue
            try:
                sides = sides_of(measure, commands, show)
                all_samples = compare(
                    sides,
                    arguments.warm_up,
                    arguments.rounds,
                    is_at_start=measure.is_at_start,
                )
            except Failed as error:
                show(f"{measure.name:19} {measure.data_set:9} FAILED: {error}")
                failed = True
                continue
            for samples in all_samples:
                record = {"measure": measure.name, "set": measure.data_set, **samples._asdict()}
                print(json.dumps(record), file=out, flush=True)
            for line in lines(measure, all_samples):
                show(line)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotRun as error:
        sys.exit(f"no data sets: {error}")
