"""One bit of a batch's header is flipped: every reader answers as before, or reports it.

Of real partitions with several segments, of every version and format. A reader gives just the
answer that the intact directory gives; or it fails with the file and the byte, or reports it; or
`docs/formats/what-the-formats-cannot-show.md` says that it cannot know. That page's last table says
which answers come from headers without verifying checksums; and

- `offset` and `base_offset` are not covered by the checksum: where offsets still rise within their
  segments, and only there, a reader may take them as they are;
- so does `partition_leader_epoch`: it is given as it is;
- a broker takes a batch that continues past the end of its file for the end of the segment, and a
  recovery cuts where a checksum is wrong: the answer by their rules may be that of a log which ends
  before that batch.

What `verify` finds is the subject of `checks/test_bit_flips.py`.
"""

import logging
import os
import random
import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from models.bit_flips import OpenFile, cut_out
from models.header_flips import flips_of, offsets_rise
from models.readers import READERS, Reported, subject_of
from models.seed import SEED, one_in, some

from kafkastore.errors import CorruptionError, KafkaStoreError, OffsetOverflowError
from kafkastore.store.data_loss import DataLossError

DOCUMENT = Path(__file__).parents[1] / "docs" / "formats" / "what-the-formats-cannot-show.md"

#: Version, case, answers, partition: three segments or more, most with few batches.
PLACES = {
    "messages-v0": ("0.8.2.2", "compacted", "answers", "compacted-1"),
    "wrappers-v0": ("0.9.0.1", "upgrade", "answers", "up-compressed-0"),
    "wrappers-v1": ("0.10.0.1", "upgrade", "answers", "up-compressed-0"),
    "messages-v1": ("0.10.2.2", "log-append-time", "answers", "lat-1"),
    "nulls-v2": ("0.11.0.3", "headers-and-nulls", "answers", "headers_nulls-0"),
    "append-times-v2": ("2.4.0", "log-append-time", "answers", "lat-1"),
    "codecs-v2": ("3.9.1", "codecs", "answers", "codecs-0"),
    "transactions-v2": ("4.1.1", "transactions", "answers", "txn-1"),
    "compacted-v2": ("4.1.1", "compacted", "answers", "compacted-1"),
    "killed": ("3.9.1", "crash", "answers", "crash-0"),
}

#: Readers by the answers of the document's last table; no other is in it.
GROUPS = {
    "lookups by brokers' rules": {
        "times 0.10.1", "times 2.4", "times 4.1", "times kip-33", "special 2.4", "special 4.1",
        "offsets 2.4",
        "spark source by time",  # by `startingTimestamp`, as for a consumer
    },
    'lookups with `indexes="trust"`': {"times by trusted indexes"},
    "`log_end_offset`": {"log end"},
    "`legacy`": {"legacy", "offsets legacy"},
    "`ls`": {"ls", "ls segments", "spark segments"},
    "`batches()`": {"batches", "batches between"},
    "`sizing`": {"sizing"},
    "`retention`": {"retention"},
    "`migrate`'s survey of segments without timestamps": {"job migrate"},
}
GROUPS["lookups by brokers' rules, after a start"] = GROUPS["lookups by brokers' rules"]
#: These are the rules of brokers, of their state after a start.
BROKERS = GROUPS["lookups by brokers' rules"] | {"legacy", "offsets legacy", "retention"}
#: These take longest, and run a third as often.
SLOW = {
    "convert command", "cat parquet", "migrate", "spark batches", "spark segments",
    "spark source committed", "cat committed", "compare",
}
#: Readers for which only one bit in this many is tried.
LARGE = {"codecs-v2", "transactions-v2", "killed"}
THINNING = 6


@cache
def documented():
    """Reader, magic and field of each answer that comes from headers without a checksum."""
    part = DOCUMENT.read_text().split("## What readers do not check")[1]
    return {
        (reader, int(magic), field)
        for answers, formats, fields in re.findall(
            r"^\| ([^|]+) \| (`[^|]+`) \| (`[^|]+`) \|", part, re.MULTILINE
        )
        for reader, magic, field in product(
            GROUPS[answers], re.findall(r"`v(\d)`", formats), re.findall(r"`(\w+)`", fields)
        )
    }


class Directory:
    """A private copy of a partition, and the answers while it was intact."""

    def __init__(self, name, golden, destination):
        version, case, answers, partition = PLACES[name]
        self.name = name
        self.root = cut_out(golden(version, case, answers).logs, partition, destination / name)
        self.asked = subject_of(self.root)
        self.flips = list(flips_of(self.root))
        self._intact = {}

    def intact(self, reader):
        """A reader's answer before any bit is flipped."""
        if reader not in self._intact:
            self._intact[reader] = READERS[reader](self.asked)
        return self._intact[reader]

    def complaint(self, flip, reader):
        """The error of a reader's answer while a bit is flipped; None if it is right.

        Called while it is.
        """
        try:
            answer = READERS[reader](self.asked)
        except Reported as reported:
            named = flip.path.name in str(reported) or flip.path.parent.name in str(reported)
            return None if named else f"reports something without a name: {reported}"
        except CorruptionError as error:
            # `RecordBatch.verify` knows no file; a copy has its own.
            name = None if error.path is None else Path(error.path).name
            has_path = name == flip.path.name or (name is None and "batches" in reader)
            is_placed = has_path and error.position is not None
            return None if is_placed else f"fails without the file and the byte: {error}"
        except DataLossError:
            return None
        except OffsetOverflowError as error:
            return None if str(flip.path) in str(error) else f"fails without the file: {error}"
        except KafkaStoreError as error:
            return f"fails with {type(error).__name__}: {error}"
        except Exception as error:  # a traceback also reports the damage
            return f"breaks off with {type(error).__name__}: {error}"
        if answer == self.intact(reader) or self._is_expected(flip, reader, answer):
            return None
        return "answers otherwise and says nothing"

    def _is_expected(self, flip, reader, answer):
        """Whether the formats, or the requested rules, allow a different answer."""
        if flip.field == "partition_leader_epoch":
            return True
        if flip.field in ("offset", "base_offset") and (
            reader == "dump" or offsets_rise(self.root)
        ):
            return True
        if (reader, flip.magic, flip.field) in documented():
            return True
        return reader in BROKERS and answer == self._answer_if_cut(flip, reader)

    def _answer_if_cut(self, flip, reader):
        """A reader's answer for a log that ends where the batch begins."""
        data, status = flip.path.read_bytes(), flip.path.stat()
        try:
            os.truncate(flip.path, flip.batch_position)
            os.utime(flip.path, ns=(status.st_atime_ns, status.st_mtime_ns))
            return READERS[reader](self.asked)
        finally:
            flip.path.write_bytes(data)
            os.utime(flip.path, ns=(status.st_atime_ns, status.st_mtime_ns))


def complaints(directory, chosen):
    """Flip bits, a pair of (flip, readers) each; return the errors of the answers."""
    found = []
    for flip, readers in chosen:
        with OpenFile(flip.path) as file, file.flipped(flip.position, flip.bit):
            for reader in readers:
                if (complaint := directory.complaint(flip, reader)) is not None:
                    found.append(f"{directory.name}: {flip}: {reader} {complaint}")
    return found


@pytest.fixture
def directory(golden, tmp_path):
    """A function of a place's name."""
    return lambda name: Directory(name, golden, tmp_path)


@pytest.fixture(autouse=True)
def _silent_log():
    """Log messages about damage are not read here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_of_a_bit_of_each_field_each_reader_answers_as_before_or_says_so(directory):
    chance = random.Random(SEED)
    directories = [directory(name) for name in PLACES]
    of_kind = {}
    for each in directories:
        for flip in each.flips:
            of_kind.setdefault(flip.kind, {}).setdefault(each.name, []).append(flip)
    by_name = {each.name: each for each in directories}
    assert len(of_kind) == 3 * (5 + 6 + 13)
    found = []
    for number, kind in enumerate(sorted(of_kind)):
        name = chance.choice(sorted(of_kind[kind]))
        flip = chance.choice(of_kind[kind][name])
        # For each field in another segment.
        is_slow_too = (number + number // 3) % 3 == 0
        readers = [reader for reader in READERS if is_slow_too or reader not in SLOW]
        for reader in readers:
            by_name[name].intact(reader)
        found += complaints(by_name[name], [(flip, readers)])
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.timeout(3600)  # thousands of commands
@pytest.mark.parametrize("place", some(list(PLACES), 5, "many bits"))
def test_of_many_bits_some_readers_answer_as_before_or_say_so(directory, place):
    chance = random.Random(f"{SEED} {place}")
    its = directory(place)
    for reader in READERS:
        its.intact(reader)
    thinning = one_in(12) * (THINNING if place in LARGE else 1)
    found = complaints(
        its,
        (
            (flip, chance.sample(sorted(READERS), 2))
            for flip in its.flips
            if chance.randrange(thinning) == 0
        ),
    )
    assert not found, "\n".join(found)
