"""The table of answers in docs/migration.md, tested on files; and its commands, run."""

import os
import struct
import zlib
from pathlib import Path

import pytest
from cli.examples import blocks_of, commands_of, run_command

import kafkastore

from .directories import migrate

DOCUMENT = Path(__file__).parents[2] / "docs" / "migration.md"


def message(offset, timestamp):
    """Pack a message: format 0 without a timestamp, or format 1; no key, one byte of value."""
    head = struct.pack(">bb", 0, 0) if timestamp is None else struct.pack(">bbq", 1, 0, timestamp)
    body = head + struct.pack(">iib", -1, 1, 7)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def write_segment(directory, base_offset, timestamps, mtime_ms):
    messages = enumerate(timestamps, base_offset)
    log = directory / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(message(offset, each) for offset, each in messages))
    log.with_suffix(".index").touch()
    os.utime(log, ns=(1, mtime_ms * 1_000_000))


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    write_segment(directory, 0, [None] * 10, 50)
    write_segment(directory, 10, range(60, 70), 200)
    write_segment(directory, 20, range(150, 160), 300)
    (directory / f"{20:020d}.timeindex").write_bytes(struct.pack(">qi", 159, 9))
    return directory


def documented():
    """Return the rows of the table: state, and an offset or None for each time."""
    lines = DOCUMENT.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| state |"))
    times = [int(cell.split("=")[1]) for cell in lines[first].split("|")[2:-1]]
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return
        state, *answers = (cell.strip() for cell in line.split("|")[1:-1])
        yield (
            state,
            {
                time: None if answer == "none" else int(answer)
                for time, answer in zip(times, answers, strict=True)
            },
        )


@pytest.mark.parametrize(("state", "expected"), [*documented()], ids=lambda each: str(each)[:24])
def test_the_documented_answers_are_those_of_the_files(partition, state, expected):
    rules = "correct" if state == "correct" else "2.4"
    if state != "correct":
        migrate(partition, state.split("`")[1])
    if "copied" in state:
        for path in partition.iterdir():
            os.utime(path)
    log = kafkastore.open(partition)["t-0"]
    found = {time: log.offset_for_timestamp(time, rules) for time in expected}
    assert {time: each and each.offset for time, each in found.items()} == expected


def test_the_documented_commands_print_the_documented_output(tmp_path):
    blocks = [block for block in blocks_of(DOCUMENT) if block.language == "console"]
    commands = [command for block in blocks for command in commands_of(block)]
    assert len(commands) == 5
    for command in commands:
        run_command(command, tmp_path)
