"""Producer snapshots, ``<offset>.snapshot``: the producers at an offset.

Big-endian; the offset in the name is the first that the snapshot does not cover::

    byte   0         2       6       10
           +---------+-------+-------+---------+---------+-----
           | version |  crc  | count | entry 0 | entry 1 | ...
           +---------+-------+-------+---------+---------+-----
             int16 1   uint32  int32   46 bytes each

    entry  0             8                10              14            22             26
           +-------------+----------------+---------------+-------------+--------------+
           | producer_id | producer_epoch | last_sequence | last_offset | offset_delta |
           +-------------+----------------+---------------+-------------+--------------+
             int64         int16            int32           int64         int32

          26          34                  38                         46
           +-----------+-------------------+--------------------------+
           | timestamp | coordinator_epoch | current_txn_first_offset |
           +-----------+-------------------+--------------------------+
             int64       int32               int64

The checksum is a CRC-32C over all bytes after it. KRaft's snapshots,
``<offset>-<epoch>.checkpoint``, are a different format: they are logs.

``docs/formats/producer_snapshot.md`` has the meaning of each field and the odd cases.

Source: Kafka 2.4.0 ``ProducerStateManager``; 3.9.0 ``ProducerSnapshot.json`` (version 1 alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkastore.arguments import check_one_dimension
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.primitives.crc import crc32c

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

VERSION = 1

VERSION_AT = 0
CRC_AT = VERSION_AT + 2
COUNT_AT = CRC_AT + 4
ENTRIES_AT = COUNT_AT + 4

PRODUCER_ENTRY = np.dtype(
    [
        ("producer_id", "<i8"),
        ("producer_epoch", "<i2"),
        ("last_sequence", "<i4"),
        ("last_offset", "<i8"),
        ("offset_delta", "<i4"),
        ("timestamp", "<i8"),
        ("coordinator_epoch", "<i4"),
        ("current_txn_first_offset", "<i8"),
    ]
)
"""One decoded entry; 46 bytes, packed."""

PRODUCER_ENTRY_ON_DISK = PRODUCER_ENTRY.newbyteorder(">")
"""One entry as the file has it; 46 bytes."""

ENTRY_SIZE = PRODUCER_ENTRY_ON_DISK.itemsize


def parse(data: bytes) -> NDArray[np.void]:
    """Parse a producer snapshot into PRODUCER_ENTRY, in file order; -1 means none.

    Raises `CorruptCheckpointError` for a file that a broker refuses: it deletes the file, and
    continues with an older snapshot or from the start of the log.

    Source: Kafka 2.4.0 ``ProducerStateManager.readSnapshot``.

    >>> parse(pack([(7, 0, 9, 96, 0, 1600000000000, 0, 96)])).tolist()
    [(7, 0, 9, 96, 0, 1600000000000, 0, 96)]
    """
    if len(data) < ENTRIES_AT:
        raise CorruptCheckpointError(
            f"producer snapshot ends within its header of {ENTRIES_AT} bytes", position=len(data)
        )
    version = int.from_bytes(data[VERSION_AT:CRC_AT], "big", signed=True)
    if version != VERSION:
        raise CorruptCheckpointError(
            f"producer snapshot has version {version}, not {VERSION}", position=VERSION_AT
        )
    count = int.from_bytes(data[COUNT_AT:ENTRIES_AT], "big", signed=True)
    whole = (len(data) - ENTRIES_AT) // ENTRY_SIZE
    if count < 0:
        raise CorruptCheckpointError(
            f"producer snapshot has an impossible entry count, {count}", position=COUNT_AT
        )
    if count > whole:
        raise CorruptCheckpointError(
            f"producer snapshot ends within entry {whole} of {count}",
            position=ENTRIES_AT + whole * ENTRY_SIZE,
        )
    stored, computed = int.from_bytes(data[CRC_AT:COUNT_AT], "big"), crc32c(data[COUNT_AT:])
    if stored != computed:
        raise CorruptCheckpointError(
            f"producer snapshot has a wrong checksum (stored {stored:#010x}, "
            f"computed {computed:#010x})",
            position=CRC_AT,
        )
    return whole_entries(data)


def whole_entries(data: bytes) -> NDArray[np.void]:
    """Decode the whole entries of a snapshot that `parse` refuses.

    Returns PRODUCER_ENTRY: as many as the file says and has, none for an unknown version. If the
    checksum is wrong, any of them may be wrong.
    """
    count = 0
    version = int.from_bytes(data[VERSION_AT:CRC_AT], "big", signed=True)
    if len(data) >= ENTRIES_AT and version == VERSION:
        whole = (len(data) - ENTRIES_AT) // ENTRY_SIZE
        count = max(min(int.from_bytes(data[COUNT_AT:ENTRIES_AT], "big", signed=True), whole), 0)
    entries = data[ENTRIES_AT : ENTRIES_AT + count * ENTRY_SIZE]
    return np.frombuffer(entries, PRODUCER_ENTRY_ON_DISK).astype(PRODUCER_ENTRY)


def pack(entries: ArrayLike) -> bytes:
    """Return a producer snapshot of PRODUCER_ENTRY, or of tuples with its fields.

    Source: Kafka 2.4.0 ``ProducerStateManager.writeSnapshot``.
    """
    array = np.asarray(entries, PRODUCER_ENTRY)
    check_one_dimension("entries", array.ndim)
    content = len(array).to_bytes(4, "big") + array.astype(PRODUCER_ENTRY_ON_DISK).tobytes()
    return VERSION.to_bytes(2, "big") + crc32c(content).to_bytes(4, "big") + content
