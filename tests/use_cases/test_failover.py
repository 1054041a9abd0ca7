"""Failover to another cluster: no record is lost, in whatever order records arrived."""
from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.internal_topics import pack_offset_commit_key, pack_offset_commit_value
from models.seed import examples
from use_cases.stores import T0, commit, record, set_topic_id, written

import kafkastore
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.jobs.failover import failover
from kafkastore.use_cases.failover import FailoverError, OtherTopicError, UnknownLatencyError
from kafkastore.use_cases.failover_check import check_failover
from kafkastore.use_cases.fingerprints import Fingerprints
from kafkastore.use_cases.lag import OffsetPlace
from kafkastore.use_cases.record_times import runs_between

LAT = {"message_timestamp_type": "LogAppendTime"}


class Clock:
    def __init__(self, now=T0):
        self.now = now

    def __call__(self):
        return self.now


def write(root, records, config=None, clock=None, topic="t", codec=Codec.NONE, batch=1):
    """Write a cluster of one partition of (timestamp, value) or (…, append time)."""
    clock = clock or Clock()
    with written(root, clock=clock) as partition:
        log = partition(topic, **(config or {}))
        for start in range(0, len(records), batch):
            made = []
            for timestamp, value, *appended in records[start : start + batch]:
                made.append(record(timestamp, value))
                clock.now = appended[0] if appended else clock.now
            log.add(*made, codec=codec)
    return kafkastore.open(root)


def at(position, topic="t", group="g"):
    return {OffsetCommitKey(group, topic, 0): position}


def only(found):
    (each,) = found
    return each


def slow_check(consumed, unread, before, after):
    """Return lost and duplicate records, counted record by record."""
    consumed, unread = Counter(consumed), Counter(unread)
    before, after = Counter(before), Counter(after)
    lost = duplicates = 0
    for each in {*consumed, *unread, *before, *after}:
        there = before[each] + after[each]
        skipped_unread = max(before[each] - consumed[each], 0)
        lost += min(unread[each], skipped_unread)
        duplicates += max(min(consumed[each], there) - before[each], 0)
    return lost, duplicates


# KIP-33, case [1]: two messages arrive in opposite orders in two clusters.

M1, M2 = (T0 + 1, b"m1"), (T0 + 2, b"m2")


@pytest.mark.parametrize(
    ("first", "second", "offset", "duplicates"),
    [([M2, M1], [M1, M2], 0, 1), ([M1, M2], [M2, M1], 0, 1), ([M1, M2], [M1, M2], 1, 0)],
    ids=["the earlier came later", "the earlier came first", "the same order"],
)
def test_two_messages_that_arrived_in_opposite_orders_are_both_consumed(
    tmp_path, first, second, offset, duplicates
):
    one, two = write(tmp_path / "1", first), write(tmp_path / "2", second)
    found = only(failover(one, two, offsets=at(1)))
    assert (found.offset, found.check.lost, found.check.duplicates) == (offset, 0, duplicates)
    assert found.check.found == found.check.unread == 1


def test_continuing_at_the_time_of_the_last_consumed_record_would_lose_a_message(tmp_path):
    """The case of KIP-33: a lookup of m2's time without subtracting the largest latency."""
    one, two = write(tmp_path / "1", [M2, M1]), write(tmp_path / "2", [M1, M2])
    by_m2 = two["t", 0].offset_for_timestamp(M2[0]).offset
    assert check_failover(one["t", 0], 1, two["t", 0], by_m2).lost == 1
    found = only(failover(one, two, offsets=at(1), by="log-append-time", largest_latency_ms=1))
    assert (found.bound.timestamp, found.offset, found.check.lost) == (M1[0], 0, 0)


@pytest.mark.parametrize("config", [{}, LAT], ids=["create time", "append time"])
def test_by_append_time_records_that_never_reached_cluster_1_are_not_lost(tmp_path, config):
    """m3 took 5 ms to cluster 2, and would have taken at most 8 to cluster 1."""
    one = write(tmp_path / "1", [(T0, b"a", T0 + 3), (T0 + 4, b"b", T0 + 9)], LAT)
    second = [(T0, b"a", T0 + 2), (T0 + 2, b"m3", T0 + 7), (T0 + 4, b"b", T0 + 8)]
    two = write(tmp_path / "2", second, config)
    found = only(
        failover(one, two, offsets=at(1), by="log-append-time", largest_latency_ms=8)
    )
    assert found.bound.timestamp == T0 + 9 - 8
    assert found.offset == (1 if config == {} else 0)
    assert found.check.lost == 0


# Any order.

RECORDS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=25)


@settings(max_examples=examples(25))
@given(RECORDS, st.data())
def test_nothing_is_lost_in_any_order_and_duplicates_are_counted(tmp_path_factory, records, data):
    root = tmp_path_factory.mktemp("any")
    first = [(T0 + timestamp, b"%d" % value) for timestamp, value in records]
    mirrored = data.draw(st.lists(st.booleans(), min_size=len(first), max_size=len(first)))
    second = [each for each, is_there in zip(first, mirrored, strict=True) if is_there]
    second = data.draw(st.permutations(second))
    others = data.draw(st.lists(st.integers(-3, 12), max_size=3))
    second += [(T0 + timestamp, b"other") for timestamp in others]
    position = data.draw(st.integers(0, len(first)))
    one = write(root / "1", first, batch=data.draw(st.sampled_from([1, 4])))
    two = write(root / "2", second or [(T0 - 9, b"other")])
    second = second or [(T0 - 9, b"other")]
    found = only(failover(one, two, offsets=at(position)))
    parts = first[:position], first[position:], second[: found.offset], second[found.offset :]
    assert (found.check.lost, found.check.duplicates) == slow_check(*parts)
    assert found.check.lost == 0
    assert found.check.unread == len(first) - position
    # No later offset is safe, except for equal timestamps: the record there reaches the bound.
    assert found.record is None or found.record.timestamp >= found.bound.timestamp


@settings(max_examples=examples(25))
@given(RECORDS, st.data())
def test_nothing_is_lost_within_the_largest_latency(tmp_path_factory, records, data):
    """Each record arrives in each cluster within 8 ms of its creation."""
    root = tmp_path_factory.mktemp("any")
    sent = [(T0 + timestamp, b"%d" % number) for number, (timestamp, _) in enumerate(records)]

    def arrive(config):
        delays = data.draw(st.lists(st.integers(0, 8), min_size=len(sent), max_size=len(sent)))
        arrived = sorted(
            (created + delay, created, value)
            for (created, value), delay in zip(sent, delays, strict=True)
        )
        return [(created, value, appended) for appended, created, value in arrived]

    config = data.draw(st.sampled_from([{}, LAT]))
    other = data.draw(st.sampled_from([{}, LAT]))
    first, second = arrive(config), arrive(other)
    reached = data.draw(st.integers(1, len(first)))  # cluster 1 failed then
    position = data.draw(st.integers(0, reached))
    one, two = write(root / "1", first[:reached], config), write(root / "2", second, other)
    found = only(
        failover(
            one, two, offsets=at(position), by="log-append-time", largest_latency_ms=8, check=False
        )
    )
    consumed = {value for _, value, _ in first[:position]}
    skipped = {value for _, value, _ in second[: found.offset]}
    assert skipped <= consumed


@settings(max_examples=examples(30))
@given(*[st.lists(st.integers(0, 4), max_size=12)] * 2, st.data())
def test_a_wrong_offset_is_detected(tmp_path_factory, first, second, data):
    root = tmp_path_factory.mktemp("any")
    first = [(T0 + each, b"v") for each in [*first, 0]]
    second = [(T0 + each, b"v") for each in [*second, 0]]
    position = data.draw(st.integers(0, len(first)))
    offset = data.draw(st.integers(0, len(second)))
    one, two = write(root / "1", first)["t", 0], write(root / "2", second)["t", 0]
    check = check_failover(one, position, two, offset)
    parts = first[:position], first[position:], second[:offset], second[offset:]
    assert (check.lost, check.duplicates) == slow_check(*parts)


# Warnings and other results.


def test_if_all_records_are_consumed_the_newest_record_decides_the_offset(tmp_path):
    records = [(T0 + number, b"%d" % number) for number in range(5)]
    one = write(tmp_path / "1", records)
    two = write(tmp_path / "2", [*records, (T0 + 9, b"later")])
    for position in (5, 7):
        found = only(failover(one, two, offsets=at(position)))
        assert (found.offset, found.check.unread, found.check.duplicates) == (4, 0, 1)
        assert found.bound.timestamp == T0 + 4
        assert found.place is (OffsetPlace.IN_LOG if position == 5 else OffsetPlace.BEYOND_END)


def test_after_unread_records_were_deleted_in_cluster_1_cluster_2_is_read_from_its_start(tmp_path):
    records = [(T0 + number, b"%d" % number) for number in range(6)]
    with written(tmp_path / "1") as partition:
        log = partition("t")
        for timestamp, value in records:
            log.add(record(timestamp, value))
        log.log.delete_records(4)
    two = write(tmp_path / "2", records)
    found = only(failover(kafkastore.open(tmp_path / "1"), two, offsets=at(2)))
    assert (found.offset, found.bound.timestamp) == (0, None)
    assert found.place is OffsetPlace.BELOW_START


def test_if_cluster_2_has_no_such_late_records_the_offset_is_its_end(tmp_path):
    one = write(tmp_path / "1", [(T0, b"a"), (T0 + 5, b"b")])
    two = write(tmp_path / "2", [(T0, b"a")])
    found = only(failover(one, two, offsets=at(1)))
    assert (found.offset, found.record) == (1, None)
    assert (found.check.unread - found.check.found, found.check.lost) == (1, 0)


def test_records_without_timestamps_are_counted_and_their_loss_is_detected(tmp_path):
    records = [(-1, b"a"), (-1, b"b"), (T0, b"c")]
    one = write(tmp_path / "1", records)
    two = write(tmp_path / "2", records)
    found = only(failover(one, two, offsets=at(1)))
    assert (found.bound.untimed_records, found.offset, found.check.lost) == (1, 2, 1)
    untimed = write(tmp_path / "3", records[:2])
    found = only(failover(untimed, two, offsets=at(1)))
    assert (found.bound.timestamp, found.offset) == (None, 0)


def test_differing_clocks_are_allowed_for_if_cluster_2_has_append_times(tmp_path):
    """Cluster 2's clock is 5 ms slow."""
    one = write(tmp_path / "1", [(T0, b"a"), (T0 + 10, b"b")])
    two = write(tmp_path / "2", [(T0, b"a", T0 - 4), (T0 + 10, b"b", T0 + 6)], LAT)
    assert only(failover(one, two, offsets=at(1))).check.lost == 1
    found = only(failover(one, two, offsets=at(1), clock_skew_ms=5))
    assert (found.bound.timestamp, found.offset, found.check.lost) == (T0 + 5, 1, 0)


def test_the_largest_latency_is_measured_if_cluster_1_shows_it(tmp_path):
    records = [(T0, b"a", T0 + 3), (T0 + 4, b"b", T0 + 11), (T0 + 12, b"c", T0 + 13)]
    one, two = write(tmp_path / "1", records, LAT), write(tmp_path / "2", records)
    found = only(failover(one, two, offsets=at(2), by="log-append-time"))
    assert found.bound.timestamp == T0 + 13 - 7
    with pytest.raises(UnknownLatencyError):
        list(failover(two, one, offsets=at(2), by="log-append-time"))


def test_mirrors_may_rename_topics(tmp_path):
    one = write(tmp_path / "1", [(T0, b"a")])
    two = write(tmp_path / "2", [(T0, b"a")], topic="one.t")
    found = only(failover(one, two, offsets=at(0), topic_prefix="one."))
    assert (found.target, found.offset, found.check.found) == (("one.t", 0), 0, 1)
    for topic in ("t", "u"):  # missing in cluster 2 and in cluster 1
        with pytest.raises(FailoverError) as error:
            list(failover(one, two, offsets=at(0, topic)))
        assert error.value.topic_partition == (topic, 0)


def test_positions_are_the_committed_offsets_in_cluster_1(tmp_path):
    records = [(T0 + number, b"%d" % number) for number in range(9)]
    with written(tmp_path / "1") as partition:
        for timestamp, value in records:
            partition("t").add(record(timestamp, value))
        partition("__consumer_offsets").add(commit("g", "t", 0, 7), commit("h", "t", 0, 2))
    one, two = kafkastore.open(tmp_path / "1"), write(tmp_path / "2", records[1:])
    found = {each.group: each.offset for each in kafkastore.failover(one, two)}
    assert found == {"g": 6, "h": 1}
    assert [each.group for each in kafkastore.failover(one, two, ["h"])] == ["h"]


def test_an_offset_of_a_deleted_topic_is_no_position_in_the_new_topic_of_the_name(tmp_path):
    """Brokers from 4.1 on write the topic id; partition.metadata has that of the new topic."""
    old_id, new_id = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    with written(tmp_path / "1") as partition:
        partition("t").add(record(T0, b"a"), record(T0 + 1, b"b"))
        offsets = partition("__consumer_offsets")
        for group, topic_id in (("old", old_id), ("new", new_id), ("without", None)):
            key = pack_offset_commit_key(OffsetCommitKey(group, "t", 0))
            committed = OffsetAndMetadata(1, "", T0, topic_id=topic_id)
            offsets.add(record(T0, pack_offset_commit_value(committed, 4), key))
    one, two = kafkastore.open(tmp_path / "1"), write(tmp_path / "2", [(T0, b"a"), (T0 + 1, b"b")])
    assert [each.offset for each in kafkastore.failover(one, two)] == [1, 1, 1]
    set_topic_id(tmp_path / "1" / "t-0", new_id)
    assert [each.group for each in kafkastore.failover(one, two, ["new", "without"])] == [
        "new", "without",
    ]
    with pytest.raises(OtherTopicError) as error:
        list(kafkastore.failover(one, two, ["old"]))
    assert error.value.topic_partition == ("t", 0)
    # A position that the caller gives is one in the new topic.
    given = {OffsetCommitKey("old", "t", 0): 1}
    assert [each.offset for each in kafkastore.failover(one, two, offsets=given)] == [1]


@pytest.mark.parametrize("clusters", [("c", "c"), ("c", "d"), ("c", None)])
def test_two_topics_of_one_cluster_with_the_same_name_are_not_compared(tmp_path, clusters):
    """Clusters have ids of their own for the same topic; in one cluster, it was created again."""
    stores = []
    for number, cluster in enumerate(clusters):
        root = tmp_path / str(number)
        stores.append(write(root, [(T0, b"a"), (T0 + 1, b"b")]))
        set_topic_id(root / "t-0", f"AAAAAAAAAAAAAAAAAAAAA{'Qg'[number]}")
        if cluster is not None:
            (root / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    failover = partial(kafkastore.failover, offsets={OffsetCommitKey("g", "t", 0): 1})
    if clusters == ("c", "c"):
        with pytest.raises(OtherTopicError) as error:
            list(failover(*stores))
        assert error.value.topic_partition == ("t", 0)
        stores[1] = stores[0]
    assert [each.offset for each in failover(*stores)] == [1]


def test_a_mirror_of_append_times_is_compared_by_the_times_its_consumer_received(tmp_path):
    """Cluster 1 has append times; the mirror forwards them as create times."""
    one = write(tmp_path / "1", [(T0, b"a", T0 + 3), (T0 + 4, b"b", T0 + 11)], LAT)
    for number, config in enumerate(({}, LAT)):
        mirrored = [(T0 + 3, b"a", T0 + 20), (T0 + 11, b"b", T0 + 21)]
        two = write(tmp_path / f"2{number}", mirrored, config)
        found = only(failover(one, two, offsets=at(1)))
        assert (found.check.found, found.check.lost) == (1, 0)


@pytest.mark.parametrize("config", [{}, LAT], ids=["create time", "append time"])
def test_producers_that_write_to_both_clusters_have_one_create_time_in_both(tmp_path, config):
    """Cluster 1 shows only its append times; b was created before a was appended."""
    one = write(tmp_path / "1", [(T0, b"a", T0 + 3), (T0 + 1, b"b", T0 + 11)], LAT)
    two = write(tmp_path / "2", [(T0, b"a", T0 + 2), (T0 + 1, b"b", T0 + 4)], config)
    found = only(failover(one, two, offsets=at(1)))
    assert found.bound.timestamp == T0 + 1
    assert (found.check.found, found.check.lost) == (1, 0)


def test_records_may_be_compared_by_content_alone(tmp_path):
    one = write(tmp_path / "1", [(T0, b"a"), (T0 + 1, b"b")])
    two = write(tmp_path / "2", [(T0 + 5, b"a"), (T0 + 6, b"b")])
    assert only(failover(one, two, offsets=at(1))).check.found == 0
    check = only(failover(one, two, offsets=at(1), match="content")).check
    assert (check.found, check.duplicates) == (1, 1)


@pytest.mark.golden_cases(names=["create*", "cod*", "old*", "comp*", "tr*"], versions=["2.4.0"])
def test_a_real_log_with_its_own_copy_continues_at_the_same_offset(golden_case):
    """Its copy is cluster 2; the records before the offset were consumed."""
    store = kafkastore.open(golden_case.logs)
    for log in store:
        for position in {log.log_start_offset, log.log_end_offset // 2, log.log_end_offset}:
            given = {OffsetCommitKey("g", *log.topic_partition): position}
            found = only(failover(store, store, offsets=given))
            unread = [each for each in log.records() if each.offset >= position]
            assert found.check.unread == found.check.found == len(unread)
            timed = [each.timestamp for each in unread if each.timestamp >= 0]
            if len(timed) == len(unread):
                assert found.check.lost == 0
                assert found.offset <= max(position, log.log_end_offset)
            if timed:  # codecs-lat has create times of 2017 in addition to its append times
                assert found.bound.timestamp <= min(timed)
                is_exact = log.topic != "codecs-lat"
                assert found.bound.timestamp == min(timed) or not is_exact


# Fingerprints.


def hashes(log, start=0, match="timestamp"):
    found = Fingerprints(start, log.log_end_offset, match)
    parts = [
        each for run in runs_between(log, start, log.log_end_offset) for _, each in found.of(run)
    ]
    return np.concatenate(parts).tolist()


CONTENT = st.none() | st.binary(max_size=40)


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(CONTENT, CONTENT, st.integers(0, 3)), min_size=1, max_size=30), st.data())
def test_fingerprints_are_equal_exactly_where_records_are(tmp_path_factory, contents, data):
    root = tmp_path_factory.mktemp("any") / "logs"
    codec = data.draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]))
    with written(root) as partition:
        for key, value, timestamp in contents:
            partition("t").add(record(T0 + timestamp, value, key))
        again = [record(T0 + timestamp, value, key) for key, value, timestamp in contents]
        partition("u").add(*again, codec=codec)
    one, two = kafkastore.open(root)
    found = hashes(one)
    assert found == hashes(two)
    assert len(set(found)) == len(set(contents))
    without_times = {(key, value) for key, value, _ in contents}
    assert len(set(hashes(one, match="content"))) == len(without_times)


def test_fingerprints_of_large_and_small_records_do_not_depend_on_their_neighbours(tmp_path):
    chance = np.random.default_rng(1)
    values = [chance.bytes(size) for size in (0, 1, 300_000, 5, 262_143, 262_144, 9, 600_000, 2)]
    with written(tmp_path / "logs") as partition:
        for value in values:
            partition("t").add(record(T0, value))
        partition("u").add(*(record(T0, value) for value in values), batch_bytes=900_000)
        for value in [*values, *values]:
            partition("v").add(record(T0, value), codec=Codec.GZIP)
    one, two, three = kafkastore.open(tmp_path / "logs")
    found = hashes(one)
    assert len(set(found)) == len(values)
    assert found == hashes(two)
    assert found * 2 == hashes(three)
