"""The transaction index, ``<base offset>.txnindex``: aborted transactions.

Entries of 34 bytes, big-endian; no header, no checksum, no padding::

    byte   0         2             10             18            26                   34
           +---------+-------------+--------------+-------------+--------------------+
           | version | producer_id | first_offset | last_offset | last_stable_offset |
           +---------+-------------+--------------+-------------+--------------------+
             int16 0   int64         int64          int64         int64

An entry is added when the marker that aborts a transaction is appended to the segment; the
transaction itself may have begun in an earlier segment. ``last_offset`` is the marker's and rises
from entry to entry. Every transaction that began below ``last_stable_offset`` was decided when the
entry was written, so that no later entry starts below it. The file is created for the first entry:
if it is missing, no transaction was aborted in this segment.

``docs/formats/transaction_index.md`` has the odd cases and a worked example.

Source: Kafka 2.4.0 ``TransactionIndex``, ``AbortedTxn``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkastore.arguments import check_one_dimension
from kafkastore.errors import CorruptIndexError, OutOfOrderAppendError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy.typing import ArrayLike, NDArray

VERSION = 0

VERSION_AT = 0
PRODUCER_ID_AT = VERSION_AT + 2
FIRST_OFFSET_AT = PRODUCER_ID_AT + 8
LAST_OFFSET_AT = FIRST_OFFSET_AT + 8
LAST_STABLE_OFFSET_AT = LAST_OFFSET_AT + 8
ENTRY_SIZE = LAST_STABLE_OFFSET_AT + 8

ABORTED_TXN = np.dtype(
    [
        ("producer_id", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),
        ("last_stable_offset", "<i8"),
    ]
)
"""One decoded entry; 32 bytes."""

ABORTED_TXN_ON_DISK = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
"""One entry as the file has it; 34 bytes."""


class TxnIndexSearchResult(NamedTuple):
    """Aborted transactions of a range (ABORTED_TXN), by last offset.

    If `is_complete` is False, transactions of the range may have been aborted in the next segment.
    """

    aborted_txns: NDArray[np.void]
    is_complete: bool


def entry_count(entries: ReadableBuffer) -> int:
    """Return the number of whole entries: the size divided by 34, rounded down."""
    return memoryview(entries).nbytes // ENTRY_SIZE


def parse(entries: ReadableBuffer) -> NDArray[np.void]:
    """Decode every whole entry into ABORTED_TXN; ignore a partial last one.

    Raises `CorruptIndexError` at the first version other than 0; a broker accepts versions up to
    255.

    Source: Kafka 2.4.0 ``TransactionIndex.iterator``.

    >>> parse(bytes.fromhex("0000" "0000000000000007" "000000000000002a" "0000000000000031"
    ...                     "000000000000002d")).tolist()
    [(7, 42, 49, 45)]
    """
    slots = _slots(entries)
    unknown = np.flatnonzero(slots["version"] != VERSION)
    if len(unknown):
        slot = int(unknown[0])
        raise CorruptIndexError(
            f"transaction index entry {slot} has version {slots['version'][slot]}, not {VERSION}",
            position=slot * ENTRY_SIZE,
        )
    parsed = np.empty(len(slots), ABORTED_TXN)
    for name in ABORTED_TXN.names or ():
        parsed[name] = slots[name]
    return parsed


def pack(entries: ArrayLike) -> bytes:
    """Encode entries, 34 bytes each; their order is not checked.

    `entries` is ABORTED_TXN, or a list of tuples (producer id, first offset, last offset, last
    stable offset).

    >>> pack([(7, 42, 49, 45)])[2:].hex(" ", 8)
    '0000000000000007 000000000000002a 0000000000000031 000000000000002d'
    """
    array = np.asarray(entries, ABORTED_TXN)
    check_one_dimension("entries", array.ndim)
    packed = np.zeros(len(array), ABORTED_TXN_ON_DISK)
    packed["version"] = VERSION
    for name in ABORTED_TXN.names or ():
        packed[name] = array[name]
    return packed.tobytes()


def check_append(last_offset: int, previous_last_offset: int | None) -> None:
    """Raise OutOfOrderAppendError if the last offset of a new entry does not rise.

    A broker does not know the last entry of a file that it has just opened, and then appends
    anything.

    Source: Kafka 2.4.0 ``TransactionIndex.append``.
    """
    if previous_last_offset is not None and last_offset <= previous_last_offset:
        raise OutOfOrderAppendError(
            f"last offset {last_offset} of an aborted transaction is not greater than"
            f" {previous_last_offset} before it"
        )


def truncate_to(entries: NDArray[np.void], offset: int) -> int:
    """Count the entries that remain when the log is truncated at `offset`.

    `offset` is the first to drop: the entries before the first whose last offset is at or after it
    remain.

    Source: Kafka 2.4.0 ``TransactionIndex.truncateTo``.
    """
    return _first(entries["last_offset"] >= offset)


def collect_aborted_txns(
    entries: NDArray[np.void], fetch_offset: int, upper_bound_offset: int
) -> TxnIndexSearchResult:
    """Find a segment's aborted transactions in `fetch_offset`..`upper_bound_offset`.

    The bounds are inclusive and exclusive. While the result is not complete, repeat with each
    following segment's `entries` (ABORTED_TXN).

    Source: Kafka 2.4.0 ``TransactionIndex.collectAbortedTxns``.

    >>> entries = np.array([(0, 0, 10, 11), (1, 5, 15, 13)], ABORTED_TXN)
    >>> found = collect_aborted_txns(entries, 12, 100)
    >>> found.aborted_txns.tolist(), found.is_complete
    ([(1, 5, 15, 13)], False)
    """
    last_read = _first(entries["last_stable_offset"] >= upper_bound_offset)
    is_complete = last_read < len(entries)
    read = entries[: last_read + 1]
    overlaps = (read["last_offset"] >= fetch_offset) & (read["first_offset"] < upper_bound_offset)
    return TxnIndexSearchResult(read[overlaps], is_complete)


def check(entries: ReadableBuffer, base_offset: int) -> None:
    """Run the sanity check of brokers, which recover the segment if it fails.

    Raises `CorruptIndexError` at a version other than 0, a last offset below the base offset or,
    unlike brokers, an incomplete last entry.

    Source: Kafka 2.4.0 ``TransactionIndex.sanityCheck``.
    """
    parsed = parse(entries)
    slot = _first(parsed["last_offset"] < base_offset)
    if slot < len(parsed):
        raise CorruptIndexError(
            f"transaction index entry {slot} has last offset {parsed['last_offset'][slot]}, below"
            f" the base offset {base_offset}",
            position=slot * ENTRY_SIZE,
        )
    size = memoryview(entries).nbytes
    if size % ENTRY_SIZE:
        raise CorruptIndexError(
            f"transaction index is {size} bytes, not a multiple of {ENTRY_SIZE}",
            position=len(parsed) * ENTRY_SIZE,
        )


def first_disorder(entries: NDArray[np.void]) -> int:
    """Return the slot of the first entry that is impossible or out of order, or -1.

    Such an entry's last offset is not above that of the entry before it, or is below its first
    offset, or a number is negative.
    """
    last_offsets = entries["last_offset"]
    is_wrong = last_offsets < entries["first_offset"]
    for name in ABORTED_TXN.names or ():
        is_wrong |= entries[name] < 0
    is_wrong[1:] |= last_offsets[1:] <= last_offsets[:-1]
    slot = _first(is_wrong)
    return slot if slot < len(entries) else -1


def _slots(entries: ReadableBuffer) -> NDArray[np.void]:
    """View the whole entries as the file has them."""
    slots: NDArray[np.void] = np.frombuffer(
        memoryview(entries), ABORTED_TXN_ON_DISK, count=entry_count(entries)
    )
    return slots


def _first(condition: NDArray[Any]) -> int:
    """Return the first index at which a condition holds; the length if it never does."""
    return int(condition.argmax()) if condition.any() else len(condition)
