"""One flipped bit: `verify` finds it, or it changes no answer, or it is a documented exception.

The tests flip the bits of small directories of real brokers, one at a time. The tables in
`docs/formats/what-the-formats-cannot-show.md` list exactly the flips that no check can find, each
with an example.

A batch's checksum detects every single-bit error in the bytes that it covers: a CRC changes by the
CRC of the change, and that of one bit is never 0. So a sample of the covered bytes is enough.
"""

import random
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from models import bit_flips
from models.bit_flips import (
    LINES,
    Answers,
    OpenFile,
    batches,
    bytes_of,
    cut_out,
    files_of,
    offsets_of,
    times_of_interest,
)
from models.seed import SEED, one_in, some

import kafkastore
from kafkastore import KafkaStoreError, migration
from kafkastore.checks.findings import Severity

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "what-the-formats-cannot-show.md"

#: Real partitions: version, case, partition, and which files of it and around it are kept.
PLACES = {
    "messages-v0": (("0.8.2.2", "compacted", "compacted-0"), {}),
    "wrappers-v0": (("0.9.0.1", "codecs", "codecs-1"), {}),
    "messages-v1-without-time-indexes": (("0.10.0.1", "compacted", "compacted-0"), {}),
    "messages-v1": (("0.10.2.2", "compacted", "compacted-0"), {}),
    "ten-segments-alone": (
        ("0.10.2.2", "roll-and-retention-by-time", "roll-0"),
        {"state": "alone", "first_segment": 40},
    ),
    "wrappers-v1": (("0.10.2.2", "codecs", "codecs-broker-0"), {}),
    "two-epochs": (("0.11.0.3", "leader-epochs", "epochs-1"), {}),
    "epochs-unclean": (
        ("2.4.0", "leader-epochs", "epochs-0"), {"state": "unclean", "first_segment": 21},
    ),
    "killed": (("2.4.0", "crash", "crash-0"), {"state": "unclean", "first_segment": 54}),
    "deleted-records": (("2.4.0", "delete-records", "deleted-0"), {}),
    "three-formats": (("2.4.0", "old-formats", "formats-0"), {"first_segment": 123}),
    "transactions-2.4": (("2.4.0", "transactions", "txn-1"), {"first_segment": 32}),
    "compacted-alone": (("3.9.1", "compacted", "compacted-1"), {"state": "alone"}),
    "append-times": (("3.9.1", "codecs", "codecs-lat-0"), {"first_segment": 78}),
    "emptied-batches": (("4.1.1", "compacted-empty-segment", "emptied-0"), {}),
    "transactions-4.1": (("4.1.1", "transactions", "txn-1"), {}),
    # Written by the tests: no golden broker was a follower, and none writes KIP-33's entries.
    "follower": (("2.4.0", "leader-epochs", "epochs-0"), {}),
    "dated-by-migration": (("0.8.2.2", "compacted", "compacted-1"), {}),
}
#: Every run of the tests flips all bits of the indexes of this directory.
TINY = "compacted-alone"
#: One of so many similar bytes is tested; in large logs one of all bytes outside `.txnindex`.
THINNING = 40
LARGE = {"transactions-2.4", "transactions-4.1"}
#: In these a `style` finding is enough: no answer depends on them, or the broker rewrites them.
SMALL_FILES = {*LINES, "partition.metadata"}


class Row(NamedTuple):
    """One row of the document's tables."""

    is_harmless: bool
    place: str
    file: str
    position: int
    bit: int


class UndetectedFlip(NamedTuple):
    """A flipped bit that is not found."""

    byte: bit_flips.Byte
    directory: "Directory"
    path: Path
    bit: int
    difference: str | None

    @property
    def kind(self):
        """Return the format and field, which identify the rows of the tables."""
        return self.byte.format, self.byte.field

    def __str__(self):
        return (
            f"{self.directory.name}: `{self.path.name}` byte {self.byte.position} bit {self.bit}, "
            f"{self.byte.field}, changes {self.difference}"
        )


class Directory:
    """A private copy of a directory, with its findings and answers before any bit is flipped."""

    def __init__(self, name, golden, destination):
        self.name = name
        (version, case, partition), kept = PLACES[name]
        logs = golden(version, case, "answers").logs
        if name == "follower":
            self.root = follow(logs / partition, destination / name)
        else:
            self.root = cut_out(logs, partition, destination / name, **kept)
        if name == "dated-by-migration":
            kafkastore.apply(migration.plan(migration.survey(self.root), mode="kip-33"))
        self.found_before = set(self._found())
        self.times = times_of_interest(self.root)
        self.answers_before = list(Answers(self.root, self.times).given())

    def _found(self):
        yield from kafkastore.verify(self.root)

    def is_found(self, file):
        """Return whether there is a new finding, above `style` where that is required."""
        new = {found.severity for found in set(self._found()) - self.found_before}
        return bool(new if file in SMALL_FILES else new - {Severity.STYLE})

    def difference(self):
        """Return the first question whose answer has changed; None if there is none."""
        return Answers(self.root, self.times).first_difference(self.answers_before)

    def unseen(self, chosen):
        """Flip each bit of the chosen bytes; yield each flip that is not found while it lasts."""
        for path in files_of(self.root):
            with OpenFile(path) as file:
                for byte in filter(chosen, bytes_of(path)):
                    for bit in range(8):
                        with file.flipped(byte.position, bit):
                            try:
                                if self.is_found(path.name):
                                    continue
                            except KafkaStoreError as error:
                                error.add_note(f"{path.name} byte {byte.position} bit {bit}")
                                raise
                            yield UndetectedFlip(byte, self, path, bit, self.difference())


def follow(partition, destination):
    """Let a follower append golden batches, three at a time, so that its indexes differ."""
    logs = sorted(partition.glob("*.log"))
    data = b"".join(path.read_bytes() for path in logs)
    complete = [data[at : at + size] for at, _, size in batches(data)]
    del complete[15:]
    with kafkastore.LogDirWriter(destination, "2.4") as log_dir:
        writer = log_dir.writer(
            "followed", 0, {"index.interval.bytes": 200, "segment.bytes": 1500}
        )
        for at in range(0, len(complete), 3):
            writer.append(b"".join(complete[at : at + 3]), as_follower=True)
    for name in (".lock", "log-start-offset-checkpoint"):
        (destination / name).unlink()
    return destination


# The tables of the document


@cache
def rows():
    """Return the rows of both tables by format and field."""
    found = {}
    for part, is_harmless in zip(
        DOCUMENT.read_text().split("## What changes nothing"), (False, True), strict=True
    ):
        for formats, fields, place, file, position, bit in re.findall(
            r"^\| (`[^|]+`) \| (`[^|]+`) \|.*\| ([\w.-]+): `([\w.-]+)` byte (\d+) bit (\d) \|$",
            part,
            re.MULTILINE,
        ):
            row = Row(is_harmless, place, file, int(position), int(bit))
            for kind in product(re.findall("`([^`]+)`", formats), re.findall("`([^`]+)`", fields)):
                found.setdefault(kind, []).append(row)
    return found


def batches_of(root):
    """Yield (segment's base offset, first offset, last offset, leader epoch or None) by batch."""
    for path in sorted(root.rglob("*.log")):
        data = path.read_bytes()
        for (at, magic, _), (_, first, last) in zip(batches(data), offsets_of(data), strict=True):
            epoch = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
            yield int(path.stem), first, last, epoch if magic == 2 else None


def offsets_still_rise(unseen):
    """Return whether offsets rise, fit their segments, and end where a closed log may end."""
    found = list(batches_of(unseen.directory.root))
    bases = sorted({base for base, *_ in found})
    ends = dict(zip(bases, [*bases[1:], 2**63 - 1], strict=True))
    before = -1
    for base, first, last, _ in found:
        if not max(before + 1, base) <= first <= last < min(ends[base], base + 2**31):
            return False
        before = last
    closed_at = unseen.directory.root / "recovery-point-offset-checkpoint"
    return not is_clean(unseen) or before < int(closed_at.read_text().split()[-1])


def epochs_still_rise(unseen):
    """Return whether no checkpoint has all epochs of the log, and the batches' epochs rise."""
    epochs = [epoch for *_, epoch in batches_of(unseen.directory.root) if epoch is not None]
    checkpoint = unseen.path.with_name("leader-epoch-checkpoint")
    has_all = checkpoint.exists() and is_clean(unseen)
    return epochs == sorted(epochs) and not has_all


def is_clean(unseen):
    """Return whether the log directory had a clean shutdown."""
    return (unseen.directory.root / bit_flips.MARKER).exists()


def no_record_has_a_timestamp(unseen):
    """Return whether all messages have magic 0 and one entry dates the segment (KIP-33)."""
    data = unseen.path.with_suffix(".log").read_bytes()
    return {magic for _, magic, _ in batches(data)} == {0} and unseen.path.stat().st_size == 12


def epochs_still_fit(unseen):
    """Return whether each batch has the checkpoint's epoch at its offset, or precedes all."""
    lines = unseen.path.read_text().split("\n")[2:]
    starts = [tuple(int(word) for word in line.split()) for line in lines if line]
    return all(
        max((start, its) for its, start in [(-1, -1), *starts] if start <= first)[1] in (epoch, -1)
        for _, first, _, epoch in batches_of(unseen.directory.root)
        if epoch is not None
    )


def offset_is_in_the_log(unseen):
    """Return whether the offset in a checkpoint is not beyond the log end."""
    said = int(unseen.path.read_text().split()[-1])
    return said <= max(last for _, _, last, _ in batches_of(unseen.directory.root)) + 1


def will_be_recovered(unseen):
    """Return whether there was no clean shutdown, and the recovery point is within the log."""
    return offset_is_in_the_log(unseen) and not is_clean(unseen)


#: When a flip that changes answers can't be found, by format and field.
CONDITIONS: dict[tuple[str, str], Callable[[UndetectedFlip], bool]] = {
    ("v0", "offset"): offsets_still_rise,
    ("v1", "offset"): offsets_still_rise,
    ("v2", "base_offset"): offsets_still_rise,
    ("v2", "partition_leader_epoch"): epochs_still_rise,
    (".timeindex", "timestamp"): no_record_has_a_timestamp,
    ("leader-epoch-checkpoint", "epoch"): epochs_still_fit,
    ("leader-epoch-checkpoint", "start_offset"): epochs_still_fit,
    ("recovery-point-offset-checkpoint", "recovery_point"): will_be_recovered,
    ("replication-offset-checkpoint", "high_watermark"): offset_is_in_the_log,
    ("log-start-offset-checkpoint", "log_start_offset"): offset_is_in_the_log,
}


def check(unseen):
    """Check that a flip that was not found changes no answer, or is in the table."""
    is_harmless = unseen.difference is None
    its_rows = [row for row in rows().get(unseen.kind, ()) if row.is_harmless == is_harmless]
    assert its_rows, f"neither found nor in the table: {unseen}"
    assert is_harmless or CONDITIONS[unseen.kind](unseen), f"its row says it is found: {unseen}"


# The tests


@pytest.fixture
def directory(golden, tmp_path):
    """Return a function that makes a directory from its name in `PLACES`."""
    return lambda name: Directory(name, golden, tmp_path)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        pytest.param(kind, row, id=f"{kind[0]}-{kind[1]}-{'harmless' if row.is_harmless else ''}")
        for kind, found in rows().items()
        for row in found
    ],
)
def test_each_row_has_an_example_that_is_not_found(directory, kind, row):
    place = directory(row.place)
    (path,) = (path for path in files_of(place.root) if path.name == row.file)
    byte = bytes_of(path)[row.position]
    with OpenFile(path) as file, file.flipped(row.position, row.bit):
        assert not place.is_found(path.name)
        difference = place.difference()
        assert (difference is None) == row.is_harmless, difference
        if (byte.format, byte.field) == kind:
            check(UndetectedFlip(byte, place, path, row.bit, difference))


def test_each_row_that_changes_answers_has_a_condition():
    assert {kind for kind, found in rows().items() if not all(r.is_harmless for r in found)} == {
        *CONDITIONS
    }


@pytest.mark.parametrize("place", PLACES)
def test_each_of_some_flipped_bits_is_found_or_harmless_or_documented(directory, place):
    chance = random.Random(f"{SEED} {place}")
    for unseen in directory(place).unseen(lambda byte: chance.random() < 0.01):
        check(unseen)


def test_each_bit_of_the_indexes_of_a_tiny_directory_is_found_or_harmless_or_documented(
    directory
):
    for unseen in directory(TINY).unseen(lambda byte: byte.format in bit_flips.ENTRIES):
        check(unseen)


@pytest.mark.soak
@pytest.mark.parametrize("place", some(list(PLACES), 9, "many bits"))
def test_each_of_many_flipped_bits_is_found_or_harmless_or_documented(directory, place):
    chance = random.Random(f"{SEED} {place}")

    def is_chosen(byte):
        if chance.randrange(one_in(12)):
            return False
        is_one_of_many = byte.is_one_of_many or (place in LARGE and byte.format != ".txnindex")
        return not is_one_of_many or chance.random() < 1 / THINNING

    for unseen in directory(place).unseen(is_chosen):
        check(unseen)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["ten-segments-alone", "append-times"])
def test_flipped_bits_that_a_checksum_covers_are_found(directory, place):
    chance = random.Random(f"{SEED} {place}")

    def is_chosen(byte):
        is_covered = byte.is_one_of_many and byte.format[0] == "v"
        return is_covered and not chance.randrange(one_in(12))

    unseen = directory(place).unseen(is_chosen)
    assert not [str(each) for each in unseen]
