"""Zeros at the end of a file, and the bytes that are stored between holes."""
import os
import time

import pytest

from kafkastore.segment.zero_tail import is_zero_from, next_extent

MIB = 1 << 20


@pytest.mark.parametrize("stores_zeros", [False, True])
@pytest.mark.parametrize(
    ("text_at", "position", "expected"),
    [
        (None, 0, True),
        (None, 5 * MIB + 7, True),
        (None, 9 * MIB, True),
        (0, 0, False),
        (0, 1, True),
        (6 * MIB + 3, 0, False),
        (6 * MIB + 3, 6 * MIB + 3, False),
        (6 * MIB + 3, 6 * MIB + 4, True),
        (8 * MIB - 1, 4097, False),
    ],
)
def test_only_zeros_follow_a_position(tmp_path, stores_zeros, text_at, position, expected):
    path = tmp_path / "file"
    with path.open("wb") as file:
        if stores_zeros:
            file.write(bytes(8 * MIB))
        file.truncate(8 * MIB)
        if text_at is not None:
            file.seek(text_at)
            file.write(b"1")
    assert is_zero_from(path, position) is expected


def test_preallocated_space_is_not_read(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 36)  # reading it would take half a minute
    before = time.process_time()
    assert is_zero_from(path, 0)
    assert time.process_time() - before < 1


def test_stored_bytes_are_found_between_holes(tmp_path):
    path = tmp_path / "file"
    size = 1 << 40
    with path.open("w+b") as file:
        file.truncate(size)
        for position in (0, size // 2):
            os.pwrite(file.fileno(), b"1", position)
        extents, position = [], 0
        while (extent := next_extent(file.fileno(), position, size)) is not None:
            extents.append(extent)
            position = extent[1]
        assert [start for start, _ in extents] == [0, size // 2]
        assert all(end - start <= MIB for start, end in extents)
        assert next_extent(file.fileno(), 10, 5) is None
        assert next_extent(file.fileno(), size // 2, size // 2 + 1) == (size // 2, size // 2 + 1)
        assert next_extent(file.fileno(), MIB, size // 2) is None
