"""Random logs in real brokers: every lookup by time is answered by that version's rules.

Other logs and times in every run, as its seed has it.
"""

import random
import shutil
from collections import Counter
from typing import NamedTuple

import pytest
from golden.make.java import BrokerFailure
from golden.make.load_into_broker import LoadOptions, broker_on
from models.chance_logs import NOW, TOPIC, boundaries, write_chance_logs
from models.list_offsets_client import ListOffsetsClient
from models.refused import refused
from models.seed import SEED, some

import kafkastore
from kafkastore.errors import UnsupportedTimestampError
from kafkastore.formats.requests.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)

pytestmark = pytest.mark.kafka

VERSIONS = some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__)
STATES = {"clean": True, "unclean": False}
PARTITIONS = 24
TIMES_EACH = 50     # of a partition, each with both isolations
TIMES_BY_CONSUMER = 8
SPECIAL_TIMESTAMPS = range(-8, 0)
UNSUPPORTED_VERSION = 35
#: An admin client's names of the special timestamps; a number is a time.
SPECS = {
    EARLIEST_TIMESTAMP: "earliest",
    LATEST_TIMESTAMP: "latest",
    MAX_TIMESTAMP: "maxTimestamp",
    NOW: str(NOW),
}
ISOLATIONS = ("read_uncommitted", "read_committed")
NOTHING = (-1, -1, -1)


class Question(NamedTuple):
    """One partition of one ListOffsets request."""

    partition: int
    timestamp: int
    version: int
    isolation: str


def questions(logs, versions):
    """Requests: lists of questions with no partition twice, and the same version and isolation."""
    lowest, newest = versions
    times = {}
    for number, log in logs.items():
        found = boundaries(log)
        chance = random.Random(f"{SEED}/times/{number}")
        times[number] = chance.sample(found, min(len(found), TIMES_EACH))
    for slot in range(TIMES_EACH):
        for isolation in ISOLATIONS:
            yield [
                Question(number, found[slot], newest, isolation)
                for number, found in times.items()
                if slot < len(found)
            ]
    for version in range(max(lowest, 1), newest + 1):
        for timestamp in SPECIAL_TIMESTAMPS:
            for isolation in ISOLATIONS[: 1 if version < 2 else 2]:
                yield [Question(number, timestamp, version, isolation) for number in logs]


def query_broker(client, request):
    """{question: (error code, timestamp, offset, leader epoch)}."""
    replies = client.ask(
        TOPIC,
        {question.partition: question.timestamp for question in request},
        version=request[0].version,
        isolation=ISOLATIONS.index(request[0].isolation),
    )
    return {
        question: (answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch)
        for question in request
        for answer in [replies[question.partition]]
    }


def wait_for_leaders(client, logs):
    """Repeat the query until every partition has one."""
    latest = dict.fromkeys(logs, LATEST_TIMESTAMP)
    while any(answer.error_code for answer in client.ask(TOPIC, latest, version=2).values()):
        pass


def our_answer(log, question, rules, leader_epoch):
    """The same answers from the directory."""
    try:
        found = log.list_offset(
            question.timestamp,
            rules,
            question.isolation,
            request_version=question.version,
            current_leader_epoch=leader_epoch,
        )
    except UnsupportedTimestampError:
        return (UNSUPPORTED_VERSION, *NOTHING)
    if found is None:
        return (0, *NOTHING)
    epoch = -1 if found.leader_epoch is None else found.leader_epoch
    return 0, found.timestamp, found.offset, epoch


def epochs_were_changed(log):
    """Whether the new leader changed the start offsets of leader epochs.

    The cluster is younger than the log and begins with epoch 0, which cuts later ones off; and a
    leader of a log without a record begins its own epoch where the log does.
    """
    newest = max((epoch for epoch, _ in log.leader_epochs), default=-1)
    return newest > 0 or log.log_start_offset == log.log_end_offset


def disagreements(store, rules, replies, leader_epoch, *, is_started):
    """List the questions that the directory and the broker answer differently."""
    wrong = []
    for question, theirs in replies.items():
        log = store[TOPIC, question.partition]
        answers = our_answer(log, question, rules, leader_epoch), theirs
        if (
            not is_started
            and question.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
            and epochs_were_changed(log)
        ):
            answers = [answer[:3] for answer in answers]
        if answers[0] != answers[1]:
            wrong.append(f"{question}: ours {answers[0]}, the broker's {answers[1]}")
    return wrong


def query_consumer(context, logs):
    """[(isolation, timestamps by partition, what KafkaConsumer.offsetsForTimes found)]."""
    chance = random.Random(f"{SEED}/consumer")
    answers = []
    for _ in range(TIMES_BY_CONSUMER):
        times = {number: chance.choice(boundaries(log)) for number, log in logs.items()}
        for isolation in ISOLATIONS:
            replies = context.client(
                "offsets_for_times", topic=TOPIC, timestamps=times, isolation=isolation
            )
            found = {int(number): row and tuple(row) for number, row in replies["found"].items()}
            answers.append((isolation, times, found))
    with pytest.raises(BrokerFailure, match="IllegalArgumentException"):
        context.client(
            "offsets_for_times", topic=TOPIC, timestamps={0: -1}, isolation=ISOLATIONS[0]
        )
    return answers


def our_offsets_for_times(store, times, rules, isolation):
    found = store.offsets_for_times(
        {(TOPIC, number): time for number, time in times.items()},
        rules=rules,
        isolation=isolation,
    )
    return {key.partition: answer and tuple(answer) for key, answer in found.items()}


def query_admin(context, logs, newest):
    """The same as `query_broker` by Admin.listOffsets, which exists since 2.5."""
    replies = {}
    for timestamp, factory in SPECS.items() if context.version != "2.4.0" else ():
        factories = dict.fromkeys(logs, factory)
        found = context.client("list_offsets", topic=TOPIC, specs=factories)["found"]
        assert found.keys() == {str(number) for number in logs}
        for number, (answered, offset, epoch) in found.items():
            question = Question(int(number), timestamp, newest, ISOLATIONS[0])
            replies[question] = (0, answered, offset, -1 if epoch is None else epoch)
    return replies


class BrokerAnswers(NamedTuple):
    """The answers of a broker."""

    by_wire: dict
    by_consumer: list
    by_admin: dict


def load_and_query(before, after, logs, version, *, is_clean):
    """Start a broker on a copy of a log directory; keep the result and the answers."""
    starts, points = (
        {
            f"{TOPIC}-{number}": getattr(log, name)
            for number, log in logs.items()
            if getattr(log, name) is not None
        }
        for name in ("checkpointed_start", "recovery_point")
    )
    options = LoadOptions(
        recover=not is_clean,
        topic_config={"segment.index.bytes": 1048576},
        recovery_points=points,
        log_start_offsets=starts,
    )
    partitions = [before / f"{TOPIC}-{number}" for number in logs]
    with broker_on(partitions, version, before.parent / "out", options) as context:
        versions = context.cluster.list_offsets_versions
        replies = {}
        with ListOffsetsClient(context.cluster.port) as client:
            wait_for_leaders(client, logs)
            for request in questions(logs, versions):
                replies |= query_broker(client, request)
        replies = BrokerAnswers(
            replies, query_consumer(context, logs), query_admin(context, logs, versions[1])
        )
        context.stop()
        shutil.copytree(context.cluster.logs, after, ignore=shutil.ignore_patterns("__*"))
    return replies


@pytest.mark.parametrize("is_clean", STATES.values(), ids=STATES)
@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_answer_for_logs_of_chance_as_their_rules_say(
    require_broker, tmp_path, version, is_clean
):
    require_broker(version)
    seeded = f"; --randomly-seed={SEED} makes the same logs again"
    before, after = tmp_path / "before", tmp_path / "after"
    logs = write_chance_logs(before, SEED, PARTITIONS, is_clean=is_clean)
    replies = load_and_query(before, after, logs, version, is_clean=is_clean)
    kinds = Counter(answer[0] or answer[2] >= 0 for answer in replies.by_wire.values())
    assert kinds[True] > 1000, f"{kinds}{seeded}"
    assert kinds[False] > 100, f"{kinds}{seeded}"
    # A new leader writes its epoch down where the log ends.
    (leader_epoch,) = {log.leader_epochs[-1].epoch for log in kafkastore.open(after)}
    for root in (before, after):
        store = kafkastore.open(root)
        for answers in (replies.by_wire, replies.by_admin):
            wrong = disagreements(
                store, version, answers, leader_epoch, is_started=root == after
            )
            assert not wrong, f"{root.name} {len(wrong)}: {wrong[:10]}{seeded}"
        for isolation, times, found in replies.by_consumer:
            ours = our_offsets_for_times(store, times, version, isolation)
            assert ours == found, f"{root.name} {isolation} {times}{seeded}"
        with refused(f"the time for {(TOPIC, 0)}"):
            store.offsets_for_times({(TOPIC, 0): -1}, rules=version)
