"""A writer is killed at any moment, many times."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from models import killed_writer
from models.killed_writer import CONFIG, value_at
from models.seed import SEED, one_in

import kafkastore
from kafkastore.writing.log_dir_writer import LogDirWriter

KILLS = 210 // one_in(3)
ENOUGH_RECORDS = 1000
LONGEST_LIFE_S = 0.06


@pytest.fixture
def server(tmp_path):
    command = [
        sys.executable, killed_writer.__file__, str(tmp_path / "logs"), str(tmp_path / "acks"),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def kill_one(server, seed, life_s, acks=None):
    """Let a child write for a while, from its first flush if `acks` is given, and kill it."""
    flushed = last_acknowledged(acks) if acks else 0
    server.stdin.write(f"{seed}\n")
    server.stdin.flush()
    child = int(server.stdout.readline())
    while acks and last_acknowledged(acks) == flushed:
        os.kill(child, 0)  # it is alive
        time.sleep(0.001)
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    return int(server.stdout.readline())


def last_acknowledged(path: Path):
    acks = path.read_bytes() if path.exists() else b""
    return int.from_bytes(acks[-8:], "big")


def test_flushed_records_survive_a_kill_and_no_others_appear(tmp_path, server):
    rng = random.Random(SEED)
    root, acks = tmp_path / "logs", tmp_path / "acks"
    number = grown = 0
    while number < KILLS or min(grown, last_acknowledged(acks)) <= ENOUGH_RECORDS:
        assert number < 20 * KILLS
        number += 1
        life_s = rng.random() * LONGEST_LIFE_S
        begun = acks if number % 2 else None
        assert kill_one(server, SEED + number, life_s, begun) == -signal.SIGKILL
        if number % 4:
            continue  # the next child recovers
        with LogDirWriter(root) as log_dir:
            writer = log_dir.writer("t", 0, CONFIG, recover=True)
            assert writer.log_end_offset >= last_acknowledged(acks)
            grown = max(grown, writer.log_end_offset)
        (log,) = kafkastore.open(root)
        offset = log.log_start_offset
        for record in log.records():
            assert (record.offset, record.value) == (offset, value_at(offset))
            offset += 1
        assert offset == log.log_end_offset
        assert not list(kafkastore.verify(root))
