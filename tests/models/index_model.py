"""The two indexes by Kafka's rules, slowly: lists of tuples, one comparison a line.

A transcription of what the broker does (2.4.0, and 2.0.1 for the search without a warm section),
made apart from the package's code.
"""

import struct
from dataclasses import dataclass
from functools import cached_property

WARM_SECTION_SIZE = 8192


def as_int64(number):
    """Wrap like Java's long."""
    return (number + 2**63) % 2**64 - 2**63


def slot_range(keys, target, warm_entries):
    """(lower, upper) as indexSlotRangeFor has them; warm_entries None: no warm section."""
    count = len(keys)
    if count == 0:
        return -1, -1

    def binary_search(begin, end):
        low, high = begin, end
        while low < high:
            middle = (low + high + 1) // 2
            key = keys[middle]
            if key > target:
                high = middle - 1
            elif key < target:
                low = middle
            else:
                return middle, middle
        return low, -1 if low == count - 1 else low + 1

    end = count - 1
    if warm_entries is not None:
        first_hot_entry = max(0, count - 1 - warm_entries)
        if keys[first_hot_entry] < target:
            return binary_search(first_hot_entry, count - 1)
        end = first_hot_entry
    if keys[0] > target:
        return -1, 0
    return binary_search(0, end)


@dataclass
class IndexModel:
    """An index of any bytes; a subclass says what an entry is."""

    data: bytes
    base_offset: int
    warm_section: bool = True

    layout = ""
    key_field = 0
    offset_field = 0

    @property
    def entry_size(self):
        return struct.calcsize(self.layout)

    @cached_property
    def slots(self):
        """The entries as the broker decodes them, padding and all."""
        complete = self.data[: len(self.data) // self.entry_size * self.entry_size]
        return [self.absolute(slot) for slot in struct.iter_unpack(self.layout, complete)]

    @property
    def used_slots(self):
        slots = [
            self.data[at : at + self.entry_size]
            for at in range(0, len(self.data) - self.entry_size + 1, self.entry_size)
        ]
        while slots and not any(slots[-1]):
            slots.pop()
        return len(slots)

    def search(self, field, target):
        keys = [slot[field] for slot in self.slots]
        warm_entries = WARM_SECTION_SIZE // self.entry_size if self.warm_section else None
        return slot_range(keys, target, warm_entries)

    def lookup(self, target):
        lower, _ = self.search(self.key_field, target)
        return self.none if lower == -1 else self.slots[lower]

    def truncate_to(self, offset):
        slot, _ = self.search(self.offset_field, offset)
        if slot < 0:
            return 0
        if self.slots[slot][self.offset_field] == offset:
            return slot
        return slot + 1

    @property
    def last_entry(self):
        return self.slots[-1] if self.slots else self.none


class OffsetIndexModel(IndexModel):
    layout = ">ii"

    @property
    def none(self):
        return self.base_offset, 0

    def absolute(self, slot):
        return as_int64(self.base_offset + slot[0]), slot[1]

    def fetch_upper_bound(self, position, fetch_size):
        _, upper = self.search(1, position + fetch_size)
        return None if upper == -1 else self.slots[upper]

    def is_sane(self):
        """The verdict of sanityCheck."""
        if self.slots and self.slots[-1][0] < self.base_offset:
            return False
        return len(self.data) % 8 == 0

    def first_disorder(self):
        before = (self.base_offset - 1, 0)
        for number, slot in enumerate(self.slots):
            if not (slot[0] > before[0] and slot[1] > before[1]):
                return number
            before = slot
        return -1


class TimeIndexModel(IndexModel):
    layout = ">qi"
    offset_field = 1

    @property
    def none(self):
        return -1, self.base_offset

    def absolute(self, slot):
        return slot[0], as_int64(self.base_offset + slot[1])

    @property
    def used_slots(self):
        """A file of one slot was trimmed and has no padding: its zeros are an entry."""
        return max(super().used_slots, int(len(self.slots) == 1))

    def is_sane(self):
        """The verdict of sanityCheck."""
        if self.slots and self.slots[-1][0] < self.slots[0][0]:
            return False
        if self.slots and self.slots[-1][1] < self.base_offset:
            return False
        return len(self.data) % 12 == 0

    def first_disorder(self):
        before = (-1, self.base_offset)
        for number, slot in enumerate(self.slots):
            if not (slot[0] > before[0] and slot[1] >= before[1]):
                return number
            before = slot
        return -1


class OffsetIndexAppends:
    """OffsetIndex.append in memory."""

    def __init__(self, base_offset, max_entries):
        self.base_offset, self.max_entries, self.entries = base_offset, max_entries, []

    def append(self, offset, position):
        if len(self.entries) >= self.max_entries:
            return "full"
        if self.entries and offset <= self.entries[-1][0]:
            return "out of order"
        if not 0 <= offset - self.base_offset <= 2**31 - 1:
            return "overflow"
        self.entries.append((offset, position))
        return "appended"


class TimeIndexAppends:
    """TimeIndex.maybeAppend in memory."""

    def __init__(self, base_offset, max_entries):
        self.base_offset, self.max_entries, self.entries = base_offset, max_entries, []

    @property
    def last_entry(self):
        return self.entries[-1] if self.entries else (-1, self.base_offset)

    def maybe_append(self, timestamp, offset, skip_full_check):
        last_timestamp, last_offset = self.last_entry
        if not skip_full_check and len(self.entries) >= self.max_entries - 1:
            return "full"
        if self.entries and offset < last_offset:
            return "out of order"
        if self.entries and timestamp < last_timestamp:
            return "out of order"
        if timestamp <= last_timestamp:
            return "nothing"
        if len(self.entries) >= self.max_entries:
            return "full"  # the broker's BufferOverflowException
        if not 0 <= offset - self.base_offset <= 2**31 - 1:
            return "overflow"
        self.entries.append((timestamp, offset))
        return "appended"
