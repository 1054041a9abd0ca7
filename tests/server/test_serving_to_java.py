"""Directories served to Kafka's own clients of several versions, unmodified."""

from __future__ import annotations

import base64
import contextlib
import shutil
from pathlib import Path
from unittest import mock

import pytest
from models import kafka_classes
from models.seed import some
from models.served_records import (
    CASES,
    COMMITTED,
    UNCOMMITTED,
    expected,
    shown,
    topics_of,
)

from kafkastore.server import serve
from kafkastore.server.authentication import MECHANISMS
from kafkastore.server.fetch.sessions import FetchSessions
from kafkastore.server.groups.consumer_group import GROUP_CONFIG
from kafkastore.server.refusing_requests import REASON

pytestmark = pytest.mark.kafka

JAVA = ["2.4.0", "3.9.1", "4.1.1", "4.3.1"]
#: Since then these clients show the reason of a refused batch, and of a topic that stays.
FIRST_WITH_REASONS = (3, 0)
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
DEFAULT = "-"
#: The partitions' sizes, log starts and gaps differ.
BOUNDS = [("4.1.1", "delete-records"), ("4.1.1", "compacted"), ("4.3.1", "transactions")]
TIMES = ("4.1.1", "create-time-out-of-order")
CORRUPTED = ("2.4.0", "create-time-monotonic")
CERTIFICATE = Path(__file__).with_name("certificate.pem")
PASSWORD = "secret"
#: Since then they take certificates in PEM.
FIRST_WITH_PEM = (2, 7)


class Answers:
    """What consumers of one version say, all of one JVM."""

    def __init__(self, version, requests, answers, session_epochs, converted):
        self.version = version
        self.session_epochs, self.converted = session_epochs, converted
        self._answers = dict(zip(requests, answers, strict=True))

    def of(self, kind, case, *words):
        return self._answers[kind, case, *words]

    def words(self, kind, case, *words):
        return self.of(kind, case, *words).split()

    def kinds(self, kind):
        return [words for name, *words in self._answers if name == kind]


def topic_of(case):
    ((topic, partitions),) = topics_of(case).items()
    return topic, partitions


def times_of(partitions):
    times = sorted({each[1] for row in partitions.values() for each in row["records"]})
    return [0, *times[::40]]


def corrupted(case, folder):
    """Copy a directory and corrupt one byte; return the copy and the first lost offset."""
    logs = folder / "corrupt"
    shutil.copytree(case.logs, logs)
    topic, partitions = topic_of(case)
    path = sorted((logs / f"{topic}-0").glob("*.log"))[1]
    first = next(each[0] for each in partitions[0]["records"] if each[0] >= int(path.stem))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    return logs, first


@pytest.fixture(scope="module")
def corrupt(golden, tmp_path_factory):
    return corrupted(golden(*CORRUPTED, "answers"), tmp_path_factory.mktemp("corrupt"))


@pytest.fixture(scope="module", params=some(JAVA, 2, __name__))
def answers(request, golden, corrupt):
    version = request.param
    asked = []
    read = some(CASES, 4, version)
    for case in read:
        for topic in topics_of(golden(*case, "answers")):
            asked += [("read", case, topic, each) for each in (UNCOMMITTED, COMMITTED)]
    for case in BOUNDS:
        topic, partitions = topic_of(golden(*case, "answers"))
        asked += [("bounds", case, topic, each) for each in (UNCOMMITTED, COMMITTED)]
        asked += [("seek", case, topic, str(offset)) for offset in offsets_of(partitions)]
        asked += [("reset", case, topic, each) for each in ("earliest", "latest", "none")]
    topic, partitions = topic_of(golden(*TIMES, "answers"))
    asked += [
        ("times", TIMES, topic, ",".join(map(str, times_of(partitions)))),
        *(("groups", TIMES, topic, f"by {each}", each) for each in assignors_of(version)),
        ("unknown", TIMES, "not-there"),
        ("refused", TIMES, topic),
        ("read", "corrupt", topic_of(golden(*CORRUPTED, "answers"))[0], UNCOMMITTED),
    ]
    if kafka_classes.brokers.version_key(version) >= FIRST_WITH_PEM:
        asked += [
            ("login", "secured", topic, mechanism, "me", password, str(CERTIFICATE))
            for mechanism in MECHANISMS for password in (PASSWORD, "wrong")
        ]
    converted, session_epochs = set(read[::2]) - {*BOUNDS, TIMES}, []
    find_context = FetchSessions.context

    def noting(sessions, request, version):
        session_epochs.append(request["session_epoch"])
        return find_context(sessions, request, version)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(FetchSessions, "context", noting))
        stack.enter_context(mock.patch.object(GROUP_CONFIG, "heartbeat_interval_ms", 200))
        servers = {
            case: stack.enter_context(serve(
                corrupt[0] if case == "corrupt" else golden(*case, "answers").logs,
                as_v2=case in converted,
            )).bootstrap_servers
            for case in {case for _, case, *_ in asked} - {"secured"}
        }
        users = corrupt[0].with_name("users")
        users.write_text(f"me:{PASSWORD}\n")
        servers["secured"] = stack.enter_context(serve(
            golden(*TIMES, "answers").logs, listen="localhost:0", users=users,
            tls=(CERTIFICATE, CERTIFICATE.with_name("key.pem")),
        )).bootstrap_servers
        found = kafka_classes.ask(
            version, [(kind, servers[case], *words) for kind, case, *words in asked],
            program="KafkaConsumers",
        )
    return Answers(version, asked, found, session_epochs, converted)


def assignors_of(version):
    """How groups share partitions: by an assignor's class, or since 4.0 by the new protocol."""
    return (DEFAULT, COOPERATIVE, *(("consumer", "pattern") if version >= "4" else ()))


def offsets_of(partitions):
    """The bounds of all partitions, and offsets between them."""
    bounds = [row[each] for row in partitions.values()
              for each in ("log_start_offset", "log_end_offset")]
    return sorted({max(bounds) // 2, *bounds})


@pytest.fixture(autouse=True)
def _all_versions(require_broker):
    for version in JAVA:
        require_broker(version)


def records_of(answer):
    """Return the rows of a `read` answer, as the answers file has them."""
    found = []
    for text in answer:
        number, offset, timestamp, kind, key, value, headers = text.split(",")
        data = [None if each == "-" else shown(base64.b64decode(each)) for each in (key, value)]
        names = [each.split(":") for each in headers.split(";") if each]
        found.append((
            int(number), int(offset), int(timestamp), kind, *data,
            [[base64.b64decode(name).decode(), None if value == "-" else value]
             for name, value in names],
        ))
    return sorted(found, key=lambda each: each[:2])


def error_of(text):
    """Return the class and message of an error."""
    name, _, message = text.partition(":")
    return name, base64.b64decode(message).decode()


def test_consumers_read_what_a_broker_gave_them(answers, golden):
    for case, topic, isolation in answers.kinds("read"):
        if case != "corrupt":
            partitions = topics_of(golden(*case, "answers"))[topic]
            found = records_of(answers.words("read", case, topic, isolation))
            wanted = expected(partitions, isolation)
            if case in answers.converted:    # in which each record has a time, if only -1
                wanted = [
                    (*row[:3], row[3].replace("NoTimestampType", "CreateTime"), *row[4:])
                    for row in wanted
                ]
            assert found == wanted, (case, topic, isolation)


def test_consumers_continue_their_fetch_sessions(answers):
    assert max(answers.session_epochs) > 1


def test_consumers_find_beginning_and_end(answers, golden):
    for case, topic, isolation in answers.kinds("bounds"):
        assert answers.words("bounds", case, topic, isolation) == [
            f"{row['log_start_offset']}-{end}"
            for _, row in sorted(topic_of(golden(*case, "answers"))[1].items())
            for end in [
                row["log_end_offset"] if isolation == UNCOMMITTED
                else row.get("last_stable_offset", row["log_end_offset"])
            ]
        ]


def test_consumers_read_from_the_offset_that_they_seek(answers, golden):
    for case, topic, offset in answers.kinds("seek"):
        found = answers.words("seek", case, topic, offset)
        for (_, row), first in zip(
            sorted(topic_of(golden(*case, "answers"))[1].items()), found, strict=True
        ):
            if row["log_start_offset"] <= int(offset) <= row["log_end_offset"]:
                assert first == next(
                    (str(each[0]) for each in row["records"] if each[0] >= int(offset)), "-"
                )


def test_consumers_beyond_the_end_are_reset_by_their_policy(answers, golden):
    for case, topic, policy in answers.kinds("reset"):
        found = answers.words("reset", case, topic, policy)
        for (_, row), position in zip(
            sorted(topic_of(golden(*case, "answers"))[1].items()), found, strict=True
        ):
            if policy == "none":
                assert error_of(position)[0] == "OffsetOutOfRangeException"
            elif policy == "latest":
                assert int(position) == row["log_end_offset"]
            else:
                first = next((each[0] for each in row["records"]), row["log_end_offset"])
                assert int(position) in (first, row["log_start_offset"])


def test_consumers_find_the_first_record_at_or_after_a_time(answers, golden):
    topic, partitions = topic_of(golden(*TIMES, "answers"))
    times = times_of(partitions)
    assert answers.words("times", TIMES, topic, ",".join(map(str, times))) == [
        next((f"{each[0]}@{each[1]}" for each in row["records"] if each[1] >= time), "-")
        for time in times for _, row in sorted(partitions.items())
    ]


def test_consumers_form_groups_share_partitions_and_commit(answers, golden):
    topic, partitions = topic_of(golden(*TIMES, "answers"))
    numbers = sorted(map(str, partitions))
    ends = [partitions[int(each)]["log_end_offset"] for each in numbers]
    for assignor in assignors_of(answers.version):
        found = answers.words("groups", TIMES, topic, f"by {assignor}", assignor)
        first, second, alone, committed, read = found
        assert sorted(first.split(",") + second.split(",")) == numbers
        assert alone.split(",") == numbers
        assert committed == ",".join(f"{end}/{end}" for end in ends)
        assert read == ",".join(
            f"{each}:{len(partitions[int(each)]['records'])}" for each in numbers
        )


def test_consumers_with_the_password_read_by_tls_and_others_are_refused_at_once(answers):
    for _, *words, password, certificate in answers.kinds("login"):
        found = answers.of("login", "secured", *words, password, certificate)
        if password == PASSWORD:
            assert found == "0"
        else:
            assert error_of(found)[0] == "SaslAuthenticationException"


def test_subscribers_of_a_topic_that_is_not_there_wait_for_it(answers):
    assert answers.of("unknown", TIMES, "not-there") == "[]"


def test_consumers_get_the_records_before_a_corrupt_batch_and_then_an_error(
    answers, golden, corrupt
):
    topic, partitions = topic_of(golden(*CORRUPTED, "answers"))
    *records, error = answers.words("read", "corrupt", topic, UNCOMMITTED)
    assert error_of(error)[0] in ("KafkaException", "IllegalStateException")
    found = [each for each in records_of(records) if each[0] == 0]
    _, first_lost = corrupt
    assert found == [each for each in expected(partitions, UNCOMMITTED)
                     if each[:2] < (0, first_lost)]


def test_producers_and_administrators_are_refused_with_the_reason(answers, golden):
    topic, _ = topic_of(golden(*TIMES, "answers"))
    found = [error_of(each) for each in answers.words("refused", TIMES, topic)]
    produced, transactional, created, deleted, extended, configured, records = found
    assert transactional[0] == "TransactionalIdAuthorizationException"
    assert records[0] == "UnsupportedVersionException"
    for error, message in (produced, created, deleted, extended, configured):
        assert error == "PolicyViolationException"
        shows_reason = (error, message) in (created, extended, configured)
        if shows_reason or kafka_classes.brokers.version_key(answers.version) >= FIRST_WITH_REASONS:
            assert message == REASON
