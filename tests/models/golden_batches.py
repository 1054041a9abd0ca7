"""Small batches of real brokers, one of each kind, for tests that damage them."""

from __future__ import annotations

from functools import cache

from models import record_reader
from models.record_format import CODEC_NAMES

#: Cases that hold every magic, codec and flag between them.
SOURCES = (
    ("2.4.0", "old-formats"),
    ("2.4.0", "codecs"),
    ("2.4.0", "transactions"),
    ("2.4.0", "headers-and-nulls"),
    ("0.10.0.1", "codecs"),
    ("0.8.2.2", "codecs"),
    ("3.9.1", "compacted"),
)


def kind_of(batch):
    """The kind of a batch, such as `v1-gzip` or `v2-none-control`."""
    magic = batch[16]
    attributes = int.from_bytes(batch[21:23], "big") if magic == 2 else batch[17]
    words = [f"v{magic}", CODEC_NAMES[attributes & 7]]
    words += ["append-time"] if attributes & 0x08 else []
    words += ["transactional"] if magic == 2 and attributes & 0x10 else []
    words += ["control"] if magic == 2 and attributes & 0x20 else []
    words += ["emptied"] if magic == 2 and batch[57:61] == bytes(4) else []
    return "-".join(words)


@cache
def smallest_batches(golden):
    """The smallest batch of every kind, with more than one record if there is one."""
    found = {}
    for version, name in SOURCES:
        case = golden(version, name, "answers")
        for path in sorted(case.logs.glob("*/*.log")):
            for _, batch in record_reader.split(path.read_bytes())[0]:
                kind = kind_of(batch)
                rank = (not _has_some_records(batch), len(batch))
                if kind not in found or rank < found[kind][0]:
                    found[kind] = (rank, batch)
    return {kind: batch for kind, (_, batch) in sorted(found.items())}


def _has_some_records(batch):
    return batch[16] < 2 or int.from_bytes(batch[57:61], "big") > 1
