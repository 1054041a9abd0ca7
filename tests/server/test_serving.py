"""Directories served over a socket, asked by a raw client."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from models.open_files import open_files
from models.protocol_client import (
    LARGEST,
    READ_COMMITTED,
    ProtocolClient,
    batches,
    committed_batches,
)
from models.record_reader import read_records
from models.seed import some

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import REQUESTS, ApiKey
from kafkastore.formats.state.file_names import parse_partition_directory
from kafkastore.server import serve

VERSIONS = [
    "0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1", "4.1.1", "4.2.2",
    "4.3.1",
]
FETCH_VERSIONS = (4, 7, 11, 12, 13, 16, 17, 18)
#: Directories that are as the broker left them when it answered.
INTACT = [
    "codecs", "compacted*", "create-time*", "delete-records", "headers-and-nulls",
    "leader-epochs", "log-append-time", "old-formats", "roll-and-retention-by-time", "transactions",
    "upgrade",
]


@pytest.fixture
def asking():
    """A function that serves a directory and returns a client of it."""
    with contextlib.ExitStack() as stack:
        def start(path, **options):
            served = stack.enter_context(serve(path, **options))
            return stack.enter_context(ProtocolClient(served.bootstrap_servers))

        yield start


def places_of(case):
    """Return {(topic, partition): answers} of the partitions that the broker was asked about."""
    return {
        tuple(parse_partition_directory(name).topic_partition): row
        for name, row in case.answers["partitions"].items()
        if "log_end_offset" in row and not name.startswith("__cluster_metadata")
    }


def log_bytes(case, place, start):
    """Return the batches of a partition from the one that has an offset, by its files."""
    topic, number = place
    found = []
    for path in sorted((case.logs / f"{topic}-{number}").glob("*.log")):
        in_file, _ = batches(path.read_bytes())
        found += [each for each in in_file if each.last_offset >= start]
    return found


def fetch_all(client, version, places, **limits):
    """Fetch until nothing comes any more; return the bytes and the last row of each place."""
    offsets, data, rows = dict(places), dict.fromkeys(places, b""), {}
    while True:
        answer = client.fetch(version, offsets, **limits)
        rows |= answer
        progress = False
        for place, row in answer.items():
            found, size = batches(row["records"])
            assert size == len(row["records"]), "only whole batches are sent"
            if found:
                assert found[0].last_offset >= offsets[place]
                offsets[place], progress = found[-1].last_offset + 1, True
                data[place] += row["records"]
        if not progress:
            return data, rows


@pytest.mark.golden_cases(
    names=INTACT, versions=some(VERSIONS, 4, __name__),
    answers=["answers", "answers-restarted", "answers-upgraded-2.4.0-appended"],
)
def test_all_batches_are_sent_as_they_lie_in_the_files(golden_case, asking):
    client = asking(golden_case.logs)
    places = places_of(golden_case)
    starts = {place: row["log_start_offset"] for place, row in places.items()}
    for version in some(FETCH_VERSIONS, 2, str(golden_case.logs)):
        for limits in (
            {},
            {"partition_max_bytes": 1},
            {"max_bytes": 700, "partition_max_bytes": 500},
        ):
            data, rows = fetch_all(client, version, starts, **limits)
            for place, row in places.items():
                sent = log_bytes(golden_case, place, starts[place])
                assert data[place] == b"".join(each.data for each in sent), (place, limits)
                assert rows[place]["high_watermark"] == row["log_end_offset"]
                assert rows[place]["error_code"] == ErrorCode.NONE
                if version >= 5:
                    assert rows[place]["log_start_offset"] == row["log_start_offset"]
