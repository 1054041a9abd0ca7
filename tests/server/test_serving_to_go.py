"""Directories served to franz-go and sarama, which read exactly what a broker gave them."""

from __future__ import annotations

import contextlib

import pytest
from models.go_readers import CLIENTS, read_by_go
from models.seed import some
from models.served_records import (
    CASES,
    COMMITTED,
    UNCOMMITTED,
    WITH_OLD_LZ4,
    expected,
    topics_of,
)

from kafkastore.server import serve

pytestmark = pytest.mark.soak

LOG_APPEND_TIME = "LogAppendTime"


def compared(rows, of_append):
    """Return rows without the times of some records.

    In message format 1, Go's clients show compressed records with the times of their creation.
    """
    return [
        (*row[:2], None, *row[3:]) if row[:2] in of_append else row for row in rows
    ]


def test_go_clients_read_what_a_broker_gave_them(golden):
    chosen = some(CASES, 5, __name__)
    with contextlib.ExitStack() as stack:
        asked, wanted, of_append = [], [], []
        for case_of in chosen:
            case = golden(*case_of, "answers")
            servers = stack.enter_context(serve(case.logs)).bootstrap_servers
            for topic, partitions in topics_of(case).items():
                for isolation in (UNCOMMITTED, COMMITTED):
                    rows = expected(partitions, isolation)
                    numbers = ",".join(map(str, partitions))
                    for client in CLIENTS:
                        asked.append((client, servers, topic, isolation, numbers, len(rows)))
                        wanted.append((case_of, [(*row[:3], *row[4:]) for row in rows]))
                        of_append.append({
                            row[:2] for row in rows
                            if row[3] == LOG_APPEND_TIME and case_of[0].startswith("0.10.")
                        })
        found = read_by_go(asked)
    for request, rows, (case_of, expected_rows), times in zip(
        asked, found, wanted, of_append, strict=True
    ):
        if case_of in WITH_OLD_LZ4:
            assert rows[0][0] == "error"
        else:
            assert compared(rows, times) == compared(expected_rows, times), request
