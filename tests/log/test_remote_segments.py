"""Remote segments: the replay of their records, and which of them a log uses.

Kafka's own classes replay other histories in every run, as its seed has it: leaders copy
overlapping and equal segments, copies end in any order, and are deleted.
"""

import random

import pytest
from models import kafka_classes
from models.seed import SEED, some

from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.remote_segments import (
    RemoteSegment,
    RemoteSegments,
    RemoteSegmentState,
    _is_within,
)

STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState
HISTORIES = 3000


def segment(name, start, end, epochs=((0, 0),), **fields):
    starts = tuple(EpochStart(epoch, max(offset, start)) for epoch, offset in epochs)
    return RemoteSegment(name, start, end, fields.get("max_timestamp", 0), 10, starts, 1)


def copied(*segments):
    found = RemoteSegments()
    for each in segments:
        found.add(each)
        found.update(each.segment_id, FINISHED)
    return found


def test_a_segment_counts_from_the_end_of_its_copy_until_its_deletion_begins():
    found = RemoteSegments()
    epochs = LeaderEpochs([(0, 0)])
    found.add(segment("a", 0, 9))
    assert (found.finished, found.highest_offset(epochs, 50)) == ([], None)
    found.update("a", FINISHED)
    assert [each.segment_id for each in found.finished] == ["a"]
    assert found.find(0, 0, epochs, 50).segment_id == "a"
    found.update("a", DELETING)
    assert found.find(0, 0, epochs, 50) is None
    found.update("a", DELETED)
    # A broker never forgets how far it has copied, so that it does not copy it again.
    assert (found.first_offset(epochs), found.highest_offset(epochs, 50)) == (None, 9)


def test_a_time_is_in_the_first_segment_that_reaches_it():
    epochs = LeaderEpochs([(0, 0), (2, 10)])
    found = copied(
        segment("a", 0, 4, max_timestamp=100),
        segment("b", 5, 14, ((0, 0), (2, 10)), max_timestamp=300),
        segment("c", 15, 19, ((2, 10),), max_timestamp=200),
    )

    def find(timestamp, start=0):
        each = found.find(timestamp, start, epochs, 30)
        return None if each is None else each.segment_id

    assert [find(each) for each in (50, 100, 101, 300, 301)] == ["a", "a", "b", "b", None]
    assert [find(150, 15), find(201, 15)] == ["c", None]


def test_segments_of_another_lineage_do_not_count():
    epochs = LeaderEpochs([(0, 0), (2, 10)])
    found = copied(segment("dead", 5, 14, ((0, 0), (1, 8))), segment("a", 0, 4))
    assert [each.segment_id for each in found.in_lineage(epochs, 30)] == ["a"]
    assert found.highest_offset(LeaderEpochs([(0, 0)]), 30) == 7
    # Records above the start of the next epoch were truncated.
    assert copied(segment("long", 0, 14)).highest_offset(epochs, 30) == 9


def random_epochs(chance, end):
    """Leader epochs of a log that ends at an offset."""
    starts = sorted(chance.sample(range(1, end), chance.randrange(min(4, end - 1))))
    epoch, found = chance.randrange(2), []
    for start in (0, *starts):
        found.append((epoch, start))
        epoch += chance.randrange(1, 3)
    return found


def random_history(chance):
    """(records, leader epochs of the log, its end offset)."""
    end = chance.randrange(2, 40)
    epochs = random_epochs(chance, end)
    others = random_epochs(chance, end)
    records, known = [], []
    for number in range(chance.randrange(1, 9)):
        start = chance.randrange(end)
        last = chance.randrange(start, end + 2)
        lineage = epochs if chance.random() < 0.8 else others
        own = [(epoch, max(offset, start)) for epoch, offset in lineage if offset <= last]
        own = [
            each for each, after in zip(own, [*own[1:], None], strict=True)
            if after is None or after[1] > start or chance.random() < 0.1
        ]
        records.append(("add", number, start, last, own))
        known.append(number)
        for _ in range(chance.randrange(4)):
            records.append(("set", chance.choice(known), chance.choice((1, 1, 2, 3))))
    shift = chance.randrange(end) if chance.random() < 0.4 else 0
    log = LeaderEpochs(epochs)
    log.truncate_from_start(shift)
    return records, [tuple(each) for each in log.entries], end


def valid(records):
    """Leave out what no broker writes: updates of segments that are gone, and a second start."""
    states, kept = {}, []
    for record in records:
        number = record[1]
        if record[0] == "add":
            states[number] = STARTED
        elif states.get(number) in (None, DELETED):
            continue
        else:
            state = RemoteSegmentState(record[2])
            after = {STARTED: (FINISHED, DELETING), FINISHED: (FINISHED, DELETING),
                     DELETING: (DELETING, DELETED)}
            if state in after[states[number]]:
                states[number] = state
        kept.append(record)
    return kept


def replay(records):
    found = RemoteSegments()
    for kind, number, *fields in records:
        if kind == "add":
            start, end, epochs = fields
            starts = tuple(EpochStart(*each) for each in epochs)
            found.add(RemoteSegment(str(number), start, end, 1000, 10, starts, 1))
        else:
            found.update(str(number), RemoteSegmentState(fields[0]))
    return found


def as_text(record):
    kind, number, *fields = record
    if kind == "set":
        return f"set:{number}:{fields[0]}"
    start, end, epochs = fields
    return f"add:{number}:{start}:{end}:{epochs_text(epochs)}"


def epochs_text(epochs):
    return ";".join(f"{epoch},{offset}" for epoch, offset in epochs)


@pytest.mark.kafka
@pytest.mark.parametrize("version", some(["3.9.1", "4.3.1"], 1, __name__))
def test_the_replay_is_that_of_kafkas_class(require_broker, version):
    require_broker(version)
    chance = random.Random(f"{SEED}/remote-segments")
    histories = [random_history(chance) for _ in range(HISTORIES)]
    histories = [(valid(records), epochs, end) for records, epochs, end in histories]
    requests = [
        (" ".join(map(as_text, records)), epochs_text(epochs), end)
        for records, epochs, end in histories
    ]
    answers = kafka_classes.ask(version, requests, program="KafkaRemoteSegments")
    seen = set()
    for (records, epochs, end), answer in zip(histories, answers, strict=True):
        found = replay(records)
        lineage = LeaderEpochs(epochs)
        for part, (epoch, _) in zip(answer.rstrip("\t").split("\t"), epochs, strict=True):
            name, *theirs = part.split(" ")
            of_epoch = found._by_epoch.get(epoch)
            highest = None if of_epoch is None else of_epoch.highest_offset
            assert name == f"{epoch}={'none' if highest is None else highest}", (records, epochs)
            ours = [
                f"{each.segment_id}/{each.state.value}/"
                f"{str(_is_within(each, lineage.entries, end)).lower()}"
                for each in found._in(epoch)
            ]
            # Segments out of use with the same start are in no particular order.
            assert sorted(ours) == sorted(theirs), (records, epochs, end)
            starts = {str(number): fields[0] for kind, number, *fields in records if kind == "add"}
            in_order = [starts[each.split("/")[0]] for each in theirs]
            assert [starts[each.split("/")[0]] for each in ours] == in_order
            seen.update(each.split("/", 1)[1] for each in theirs)
    assert {"1/true", "1/false", "0/true", "2/true"} <= seen
