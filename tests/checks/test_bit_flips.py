"""One bit turned over: `verify` finds it, or nobody is told otherwise for it, or a table says so.

Of small directories of real brokers, bit after bit. What no check can find stands in
`docs/formats/what-the-formats-cannot-show.md`: that table and no more, each row with an example.

A batch's checksum finds each single bit of what it covers: a CRC changes by the CRC of the change,
and that of one bit is never 0. So of the covered bytes a sample is enough.
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
from models.seed import SEED, one_in

import kafkastore
from kafkastore import KafkaStoreError, migration
from kafkastore.checks.findings import Severity

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "what-the-formats-cannot-show.md"

#: Real partitions: version, case, partition, and what is left around it and of it.
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
    # Made here: no golden broker followed another, none writes the entries of KIP-33's text.
    "follower": (("2.4.0", "leader-epochs", "epochs-0"), {}),
    "dated-by-migration": (("0.8.2.2", "compacted", "compacted-1"), {}),
}
#: All bits of its indexes, at every run of the tests.
TINY = "compacted-alone"
#: Of bytes that are many alike, one of so many; so of all of large logs but their `.txnindex`.
THINNING = 40
LARGE = {"transactions-2.4", "transactions-4.1"}
#: Beside these, style is enough: they answer nothing by themselves, or the broker writes them anew.
SMALL_FILES = {*LINES, "partition.metadata"}


class Row(NamedTuple):
    """One row of the document's tables."""

    is_harmless: bool
    place: str
    file: str
    position: int
    bit: int


class Unseen(NamedTuple):
    """A flip that is not found."""

    byte: bit_flips.Byte
    directory: "Directory"
    path: Path
    bit: int
    difference: str | None

    @property
    def kind(self):
        """What the tables' rows are known by."""
        return self.byte.format, self.byte.field

    def __str__(self):
        return (
            f"{self.directory.name}: `{self.path.name}` byte {self.byte.position} bit {self.bit}, "
            f"{self.byte.field}, changes {self.difference}"
        )


class Directory:
    """A private copy of a place, and what is found and answered while nothing is turned over."""

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
        """Whether something new is found, and above style if it must be."""
        new = {found.severity for found in set(self._found()) - self.found_before}
        return bool(new if file in SMALL_FILES else new - {Severity.STYLE})

    def difference(self):
        """The first question that is answered otherwise now; None where none is."""
        return Answers(self.root, self.times).first_difference(self.answers_before)

    def unseen(self, chosen):
        """Turn over the bits of chosen bytes; yield what is not found, while it is turned over."""
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
                            yield Unseen(byte, self, path, bit, self.difference())


def follow(partition, destination):
    """Let a follower take golden batches, three at a time, which is how its indexes differ."""
    logs = sorted(partition.glob("*.log"))
    data = b"".join(path.read_bytes() for path in logs)
    whole = [data[at : at + size] for at, _, size in batches(data)]
    del whole[15:]
    with kafkastore.LogDirWriter(destination, "2.4") as log_dir:
        writer = log_dir.writer(
            "followed", 0, {"index.interval.bytes": 200, "segment.bytes": 1500}
        )
        for at in range(0, len(whole), 3):
            writer.append(b"".join(whole[at : at + 3]), as_follower=True)
    for name in (".lock", "log-start-offset-checkpoint"):
        (destination / name).unlink()
    return destination


# What the document says


@cache
def rows():
    """The rows of both tables by format and field."""
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
    """(segment's base offset, first offset, last offset, leader epoch or None) of each batch."""
    for path in sorted(root.rglob("*.log")):
        data = path.read_bytes()
        for (at, magic, _), (_, first, last) in zip(batches(data), offsets_of(data), strict=True):
            epoch = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
            yield int(path.stem), first, last, epoch if magic == 2 else None


def offsets_still_rise(unseen):
    """Offsets rise from batch to batch, fit their segments, and end where a closed log may."""
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
    """No checkpoint has all epochs of the log, and no batch has an older one than before."""
    epochs = [epoch for *_, epoch in batches_of(unseen.directory.root) if epoch is not None]
    beside = unseen.path.with_name("leader-epoch-checkpoint")
    has_all = beside.exists() and is_clean(unseen)
    return epochs == sorted(epochs) and not has_all


def is_clean(unseen):
    """Whether the log directory was closed properly."""
    return (unseen.directory.root / bit_flips.MARKER).exists()


def no_record_has_a_timestamp(unseen):
    """The segment holds messages of magic 0 only, and one entry dates it (KIP-33)."""
    data = unseen.path.with_suffix(".log").read_bytes()
    return {magic for _, magic, _ in batches(data)} == {0} and unseen.path.stat().st_size == 12


def epochs_still_fit(unseen):
    """Each batch has the epoch that the checkpoint has at its offset, or lies before all."""
    lines = unseen.path.read_text().split("\n")[2:]
    starts = [tuple(int(word) for word in line.split()) for line in lines if line]
    return all(
        max((start, its) for its, start in [(-1, -1), *starts] if start <= first)[1] in (epoch, -1)
        for _, first, _, epoch in batches_of(unseen.directory.root)
        if epoch is not None
    )


def offset_is_in_the_log(unseen):
    """What a checkpoint says of the log is not behind the log end."""
    said = int(unseen.path.read_text().split()[-1])
    return said <= max(last for _, _, last, _ in batches_of(unseen.directory.root)) + 1


def will_be_recovered(unseen):
    """The log was not closed properly, and the recovery point is not behind the log end."""
    return offset_is_in_the_log(unseen) and not is_clean(unseen)


#: When a flip that changes answers can't be seen, by format and field.
CONDITIONS: dict[tuple[str, str], Callable[[Unseen], bool]] = {
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
    """Check that what was not found changes nothing, or stands in the table as it says there."""
    is_harmless = unseen.difference is None
    its_rows = [row for row in rows().get(unseen.kind, ()) if row.is_harmless == is_harmless]
    assert its_rows, f"not found, and in no row: {unseen}"
    assert is_harmless or CONDITIONS[unseen.kind](unseen), f"by its row it is found: {unseen}"


# The tests


@pytest.fixture
def directory(golden, tmp_path):
    """A function of a place's name."""
    return lambda name: Directory(name, golden, tmp_path)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        pytest.param(kind, row, id=f"{kind[0]}-{kind[1]}-{'harmless' if row.is_harmless else ''}")
        for kind, found in rows().items()
        for row in found
    ],
)
def test_each_row_has_an_example_that_can_not_be_found(directory, kind, row):
    place = directory(row.place)
    (path,) = (path for path in files_of(place.root) if path.name == row.file)
    byte = bytes_of(path)[row.position]
    with OpenFile(path) as file, file.flipped(row.position, row.bit):
        assert not place.is_found(path.name)
        difference = place.difference()
        assert (difference is None) == row.is_harmless, difference
        if (byte.format, byte.field) == kind:
            check(Unseen(byte, place, path, row.bit, difference))


def test_each_row_with_changes_says_when():
    assert {kind for kind, found in rows().items() if not all(r.is_harmless for r in found)} == {
        *CONDITIONS
    }


@pytest.mark.parametrize("place", PLACES)
def test_of_some_bits_turned_over_each_is_found_or_harmless_or_in_the_table(directory, place):
    chance = random.Random(f"{SEED} {place}")
    for unseen in directory(place).unseen(lambda byte: chance.random() < 0.01):
        check(unseen)


def test_each_bit_of_every_index_of_a_tiny_directory_is_found_or_harmless_or_in_the_table(
    directory
):
    for unseen in directory(TINY).unseen(lambda byte: byte.format in bit_flips.ENTRIES):
        check(unseen)


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_of_many_bits_turned_over_each_is_found_or_harmless_or_in_the_table(directory, place):
    chance = random.Random(f"{SEED} {place}")

    def is_chosen(byte):
        if chance.randrange(one_in(8)):
            return False
        is_one_of_many = byte.is_one_of_many or (place in LARGE and byte.format != ".txnindex")
        return not is_one_of_many or chance.random() < 1 / THINNING

    for unseen in directory(place).unseen(is_chosen):
        check(unseen)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["ten-segments-alone", "append-times"])
def test_bits_that_a_checksum_covers_are_found(directory, place):
    chance = random.Random(f"{SEED} {place}")

    def is_chosen(byte):
        is_covered = byte.is_one_of_many and byte.format[0] == "v"
        return is_covered and not chance.randrange(one_in(8))

    unseen = directory(place).unseen(is_chosen)
    assert not [str(each) for each in unseen]
