"""Directories served over a socket, asked by a raw client."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
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
from kafkastore.formats.requests import apis
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
    names=INTACT, versions=some(VERSIONS, 2, __name__),
    answers=["answers", "answers-restarted", "answers-upgraded-2.4.0-appended"],
)
def test_all_batches_are_sent_as_they_lie_in_the_files(golden_case, asking):
    client = asking(golden_case.logs)
    places = places_of(golden_case)
    starts = {place: row["log_start_offset"] for place, row in places.items()}
    for version in some(FETCH_VERSIONS, 1, str(golden_case.logs)):
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


def records_of(found, start, end):
    """Return the offsets of the records in batches, within a range."""
    return [
        record[0] for batch in found if not batch.is_control
        for record in read_records(batch.data) if start <= record[0] < end
    ]


@pytest.mark.golden_cases(names="transactions")
def test_consumers_of_committed_records_get_what_a_broker_gives_them(golden_case, asking):
    client = asking(golden_case.logs)
    for place, row in places_of(golden_case).items():
        if "committed_offsets" not in row:
            continue
        for limits in ({}, {"partition_max_bytes": 300}):
            offset, committed = row["log_start_offset"], []
            while True:
                (answer,) = client.fetch(
                    some(FETCH_VERSIONS, 1, str(place))[0], {place: offset},
                    isolation_level=READ_COMMITTED, **limits,
                ).values()
                assert answer["last_stable_offset"] in (row["last_stable_offset"], -1)
                found, _ = batches(answer["records"])
                if not found:
                    break
                visible = committed_batches(found, answer["aborted_transactions"])
                committed += records_of(visible, offset, LARGEST)
                offset = found[-1].last_offset + 1
            assert offset == answer["last_stable_offset"]
            assert committed == row["committed_offsets"]
            (answer,) = client.fetch(4, {place: row["log_start_offset"]}).values()
            assert answer["aborted_transactions"] is None


@pytest.mark.golden_cases(names=["crash-torn", "crash-bad-crc"], answers="answers")
def test_batches_before_a_corrupt_one_are_sent_and_nothing_of_it(golden_case, asking):
    client = asking(golden_case.logs)
    for place, row in places_of(golden_case).items():
        sent = log_bytes(golden_case, place, row["log_start_offset"])
        recovered = (golden_case.root / "answers-recovered.json").read_text()
        end = json.loads(recovered)["partitions"]["-".join(map(str, place))]["log_end_offset"]
        sound = [each for each in sent if each.last_offset < end]
        data, rows = fetch_all(client, 12, {place: row["log_start_offset"]})
        assert data[place] == b"".join(each.data for each in sound)
        is_corrupt = len(sound) < len(sent)
        expected = ErrorCode.CORRUPT_MESSAGE if is_corrupt else ErrorCode.NONE
        assert rows[place]["error_code"] == expected
        assert is_corrupt <= (golden_case.name == "crash-bad-crc")


def test_offsets_that_are_not_in_the_log_are_out_of_range(golden, asking):
    case = golden("4.3.1", "delete-records", "answers")
    client = asking(case.logs)
    for place, row in places_of(case).items():
        start, end = row["log_start_offset"], row["log_end_offset"]
        for offset in (-1, start - 1, end + 1, 2**62):
            (answer,) = client.fetch(12, {place: offset}).values()
            assert answer["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (answer["log_start_offset"], answer["high_watermark"]) == (-1, -1)
            assert answer["records"] == b""
        (answer,) = client.fetch(12, {place: end}).values()
        assert (answer["error_code"], answer["records"]) == (ErrorCode.NONE, b"")


def test_unknown_partitions_and_leader_epochs_are_refused(golden, asking):
    client = asking(golden("4.3.1", "leader-epochs", "answers").logs)
    missing = client.fetch(12, {("missing", 0): 0, ("epochs", 9): 0, ("epochs", 0): 0})
    # As in a broker, unknown partitions are the last ones.
    assert [row["error_code"] for row in missing.values()] == [0, 3, 3]
    assert next(iter(missing.values()))["records"]
    newest = client.ask(ApiKey.METADATA, 9, topics=({"name": "epochs"},))
    epoch = newest["topics"][0]["partitions"][0]["leader_epoch"]
    assert epoch > 0
    for asked, error in (
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}
        row["current_leader_epoch"] = asked
        answer = client.ask(
            ApiKey.FETCH, 11, max_wait_ms=0, min_bytes=1,
            topics=({"topic": "epochs", "partitions": (row,)},),
        )
        assert answer["responses"][0]["partitions"][0]["error_code"] == error
    unknown = client.ask(
        ApiKey.FETCH, 13, max_wait_ms=0, min_bytes=1,
        topics=({"topic_id": 21 * "A" + "Q", "partitions": (row,)},),
    )
    (row,) = unknown["responses"][0]["partitions"]
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_first_batch_is_sent_whole_and_no_other_over_the_limit(golden, asking):
    case = golden("2.4.0", "headers-and-nulls", "answers")
    client = asking(case.logs)
    places = list(places_of(case))
    (first, *_) = [log_bytes(case, place, 0) for place in places]
    size = len(first[0].data)
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}, {"max_bytes": size}):
        rows = client.fetch(11, {places[0]: 0}, **limits)
        assert rows[places[0]]["records"] == first[0].data
    several = golden("2.4.0", "create-time-out-of-order", "answers")
    client = asking(several.logs)
    places = dict.fromkeys(places_of(several), 0)
    answered = client.fetch(11, places, max_bytes=1)
    assert [bool(row["records"]) for row in answered.values()] == [True] + [False] * (
        len(places) - 1
    )
    answered = client.fetch(11, places, partition_max_bytes=1)
    sizes = [len(batches(row["records"])[0]) for row in answered.values()]
    assert sizes == [1] + [0] * (len(places) - 1)


def lists(case):
    """Yield (place, row of the answers) for each ListOffsets request with a version."""
    for place, partition in places_of(case).items():
        for row in partition.get("list_offsets", []):
            yield place, row


def ask_offset(client, place, row):
    """Return the row of a ListOffsets response."""
    answer = client.ask(
        ApiKey.LIST_OFFSETS, row["version"], replica_id=-1,
        isolation_level=row.get("isolation", 0),
        topics=({
            "name": place[0],
            "partitions": ({
                "partition_index": place[1],
                "timestamp": row["timestamp"],
                "max_num_offsets": row.get("max_num_offsets", 1),
            },),
        },),
    )
    (found,) = answer["topics"][0]["partitions"]
    return found


@pytest.mark.golden_cases(
    names=["create-time*", "compacted", "delete-records", "transactions", "leader-epochs"],
    versions=some(["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1", "4.1.1", "4.3.1"], 2, "list"),
)
def test_offsets_by_the_rules_of_a_version_are_those_of_its_broker(golden_case, asking):
    client = asking(golden_case.logs, rules=golden_case.version)
    asked = 0
    for place, row in some(list(lists(golden_case)), 300, str(golden_case.logs)):
        if row["error"] == ErrorCode.UNSUPPORTED_VERSION:
            continue
        answer = ask_offset(client, place, row)
        expected = row["error"], row["result_timestamp"], row["offset"]
        assert (answer["error_code"], answer["timestamp"], answer["offset"]) == expected, row
        if row["leader_epoch"] is not None and row["timestamp"] != -1:
            assert answer["leader_epoch"] == row["leader_epoch"], (place, row)
        asked += 1
    assert asked


def test_offsets_by_correct_rules_are_those_of_the_records(golden, asking):
    case = golden("4.1.1", "compacted-empty-segment", "answers")
    by_rules = {rules: asking(case.logs, rules=rules) for rules in ("correct", "4.1.1")}
    differing = 0
    for place, partition in places_of(case).items():
        for row in some(partition["list_offsets"], 60, str(place)):
            if row["timestamp"] < 0 or row["isolation"]:
                continue
            expected = next(
                ((each[0], each[1]) for each in partition["records"]
                 if each[1] >= row["timestamp"]),
                (-1, -1),
            )
            answer = ask_offset(by_rules["correct"], place, row)
            assert (answer["offset"], answer["timestamp"]) == expected
            differing += ask_offset(by_rules["4.1.1"], place, row) != answer
    assert differing


@pytest.mark.golden_cases(names="create-time*", versions=["0.10.2.2", "2.4.0"])
def test_offsets_by_modification_times_are_those_of_the_broker(golden_case, asking):
    clients = [asking(golden_case.logs, rules=rules) for rules in ("correct", "legacy")]
    for place, partition in places_of(golden_case).items():
        names = partition["mtimes_when_asked_ms"]
        path = golden_case.logs / "-".join(map(str, place))
        if any(int(os.stat(path / name).st_mtime_ns // 10**6) != names[name] for name in names):
            continue
        end = partition["log_end_offset"]
        for row in partition["list_offsets_v0"]:
            # The log end has the time of the request, which is later now.
            is_by_clock = row["timestamp"] >= 0 and row.get("offsets", [])[:1] == [end]
            if "exception" not in row and not is_by_clock:
                for client in clients:
                    answer = ask_offset(client, place, row | {"version": 0})
                    assert list(answer["old_style_offsets"]) == row["offsets"], row


@pytest.mark.golden_cases(names="leader-epochs", answers="answers")
def test_leader_epochs_end_where_the_next_one_starts(golden_case, asking):
    client = asking(golden_case.logs)
    store = kafkastore.open(golden_case.logs)
    for place, log in store.partitions.items():
        epochs = [(each.epoch, each.start_offset) for each in log.leader_epochs]
        if place.topic != "epochs" or not epochs:
            continue
        ends = {
            epoch: end for (epoch, _), (_, end)
            in itertools.zip_longest(epochs, epochs[1:], fillvalue=(0, log.log_end_offset))
        }
        known = sorted(ends)
        for asked in range(-1, known[-1] + 2):
            for version in (2, 3, 4):
                answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=({
                    "topic": place.topic,
                    "partitions": ({"partition": place.partition, "leader_epoch": asked},),
                },))
                (row,) = answer["topics"][0]["partitions"]
                below = [epoch for epoch in known if epoch <= asked]
                expected = (below[-1], ends[below[-1]]) if below else None
                if asked > known[-1] or asked < 0:
                    expected = -1, -1
                elif expected is None:
                    expected = asked, epochs[0][1]
                assert (row["leader_epoch"], row["end_offset"]) == expected, (asked, epochs)


def test_metadata_of_every_version_names_the_one_node(golden, asking):
    case = golden("4.3.1", "create-time-out-of-order", "answers")
    client = asking(case.logs)
    for version in range(14):
        check_metadata(case, client, version)


def check_metadata(case, client, version):
    answer = client.ask(ApiKey.METADATA, version, topics=None if version else ())
    (broker,) = answer["brokers"]
    assert client.socket.getpeername() == (broker["host"], broker["port"])
    topics = {topic["name"]: topic for topic in answer["topics"]}
    partitions = {
        (name, row["partition_index"])
        for name, topic in topics.items() for row in topic["partitions"]
    }
    assert partitions == {tuple(place) for place in kafkastore.open(case.logs).partitions}
    for topic in topics.values():
        assert topic["error_code"] == ErrorCode.NONE
        for row in topic["partitions"]:
            assert row["leader_id"] == broker["node_id"]
            assert row["replica_nodes"] == row["isr_nodes"] == (broker["node_id"],)
    if version:
        assert client.ask(ApiKey.METADATA, version, topics=())["topics"] == ()
    asked = ({"name": "missing"}, {"name": next(iter(topics))})
    found = client.ask(ApiKey.METADATA, version, topics=asked)["topics"]
    assert [(each["name"], each["error_code"]) for each in found] == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (asked[1]["name"], ErrorCode.NONE),
    ]
    if version in (10, 11):    # the field was there before it had a meaning
        wanted = ({"topic_id": 21 * "A" + "Q", "name": "missing"}, {"name": None})
        found = client.ask(ApiKey.METADATA, version, topics=wanted)["topics"]
        assert [each["error_code"] for each in found] == 2 * [ErrorCode.INVALID_REQUEST]
    if version >= 12:
        ids = [topics[asked[1]["name"]]["topic_id"], 21 * "A" + "Q"]
        wanted = tuple({"topic_id": each, "name": None} for each in ids)
        found = client.ask(ApiKey.METADATA, version, topics=wanted)["topics"]
        assert [(each["topic_id"], each["error_code"]) for each in found] == (
            list(zip(ids, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID], strict=True))
        )


def test_the_versions_that_are_listed_are_answered(golden, asking):
    client = asking(golden("4.3.1", "codecs", "answers").logs)
    for version in range(6):
        answer = client.ask(ApiKey.API_VERSIONS, version)
        assert answer["error_code"] == ErrorCode.NONE
        listed = {each["api_key"]: each for each in answer["api_keys"]}
        assert {ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE} <= set(listed)
    for key, row in listed.items():
        versions = REQUESTS.descriptions[key].versions
        assert (row["min_version"], row["max_version"]) == (versions.oldest, versions.newest)


def test_an_unknown_version_of_the_first_request_gets_the_versions(golden, asking):
    client = asking(golden("4.3.1", "codecs", "answers").logs)
    expected = client.ask(ApiKey.API_VERSIONS, 0)
    frame = bytes.fromhex("0012 0063 0000002a 0002 6d65 00 03 6d65 00")
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    answer = client.receive()
    assert answer[:6] == bytes.fromhex("0000002a 0023")
    header = apis.RequestHeader(ApiKey.API_VERSIONS, 0, 42, None)
    assert apis.parse_response(header, answer)["api_keys"] == expected["api_keys"]
    assert client.topic_ids(), "the connection goes on"


NOT_A_REQUEST = {
    "an unknown request": "0000000a 03e7 0000 00000001 ffff",
    "an unknown version": "0000000a 0001 0063 00000001 ffff",
    "an old version": "0000000a 0001 0003 00000001 ffff",
    "a negative size": "ffffffff",
    "a huge size": "7fffffff 0001",
    "an incomplete header": "00000004 0003 0001",
    "an incomplete request": "0000000c 0003 0001 00000001 ffff 0000",
    "an impossible length": "0000000e 0003 0001 00000001 ffff 7fffffff",
    "another protocol": "16030100 c8010000c403" + 200 * "aa",
    "no bytes": "00000000",
    "words": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".hex(),
}


@pytest.mark.parametrize("name", NOT_A_REQUEST)
def test_what_is_no_request_ends_only_its_connection(golden, name):
    with (
        serve(golden("4.3.1", "codecs", "answers").logs) as served,
        ProtocolClient(served.bootstrap_servers) as other,
    ):
        with ProtocolClient(served.bootstrap_servers) as client:
            client.socket.sendall(bytes.fromhex(NOT_A_REQUEST[name]))
            if name == "words":    # its first four bytes are a size
                assert int.from_bytes(b"GET ", "big") > 2**20
            assert client.has_ended()
        assert other.topic_ids()


def test_half_a_frame_holds_up_nobody(golden):
    with serve(golden("4.3.1", "codecs", "answers").logs) as served:
        with ProtocolClient(served.bootstrap_servers) as half:
            half.socket.sendall(bytes.fromhex("00000064 0003 0001"))
            with ProtocolClient(served.bootstrap_servers) as other:
                assert other.topic_ids()
            half.socket.shutdown(socket.SHUT_WR)
            assert half.has_ended()
        with ProtocolClient(served.bootstrap_servers) as split:
            frame = bytes.fromhex("0000000e 0003 0001 00000001 ffff ffffffff")
            for byte in frame:
                split.socket.sendall(bytes([byte]))
            assert split.receive()


def test_requests_that_are_sent_at_once_are_answered_in_their_order(golden, asking):
    client = asking(golden("4.3.1", "codecs", "answers").logs)
    headers = [client.send(ApiKey.METADATA, version, topics=None) for version in range(1, 14)]
    for header in headers:
        assert apis.parse_response(header, client.receive())["topics"]


# Directories that grow


def value(number):
    return SimpleNamespace(timestamp=1_600_000_000_000 + number, key=None, value=b"%d" % number)


@pytest.fixture
def growing(tmp_path):
    """A log directory, and the writer that appends to it."""
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 400})
        writer.append_records([value(0)])
        writer.flush()
        yield SimpleNamespace(path=tmp_path / "logs", writer=writer, log_dir=log_dir)


def append(growing, number):
    growing.writer.append_records([value(number)])
    growing.writer.flush()


def test_a_fetch_at_the_log_end_waits_as_long_as_the_client_says(growing, asking):
    client = asking(growing.path)
    start = time.monotonic()
    (row,) = client.fetch(11, {("t", 0): 1}, max_wait_ms=300).values()
    assert time.monotonic() - start >= 0.3
    assert (row["error_code"], row["records"], row["high_watermark"]) == (0, b"", 1)
    # The client would not wait as long for an answer.
    (row,) = client.fetch(11, {("t", 0): 0}, max_wait_ms=LARGEST).values()
    assert row["records"]
    (row,) = client.fetch(11, {("t", 0): 9}, max_wait_ms=LARGEST).values()
    assert row["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    client.fetch(11, {("t", 0): 1}, max_wait_ms=LARGEST, min_bytes=0)
    start = time.monotonic()
    (row,) = client.fetch(11, {("t", 0): 0}, max_wait_ms=200, min_bytes=10_000).values()
    assert time.monotonic() - start >= 0.2
    assert row["records"]


def test_all_who_wait_for_a_log_get_what_is_appended(growing):
    with serve(growing.path) as served, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(ProtocolClient(served.bootstrap_servers)) for _ in range(4)
        ]
        for number in range(1, 12):    # over several segments
            topics = ({"topic": "t", "partitions": ({
                "partition": 0, "fetch_offset": number, "partition_max_bytes": LARGEST,
            },)},)
            headers = [
                client.send(ApiKey.FETCH, 11, max_wait_ms=800_000, min_bytes=1, topics=topics)
                for client in clients
            ]
            append(growing, number)
            for client, header in zip(clients, headers, strict=True):
                answer = apis.parse_response(header, client.receive())
                (row,) = answer["responses"][0]["partitions"]
                assert row["error_code"] == ErrorCode.NONE
                (batch,) = batches(row["records"])[0]
                assert batch.last_offset == number
        assert len(list((growing.path / "t-0").glob("*.log"))) > 2


def test_new_topics_are_found(growing, asking):
    client = asking(growing.path)
    assert set(client.topic_ids()) == {"t"}
    new = growing.log_dir.writer("new", 0)
    new.append_records([value(7)])
    new.flush()
    assert set(client.topic_ids()) == {"t", "new"}
    (row,) = client.fetch(13, {("new", 0): 0}).values()
    assert row["records"]


def test_a_partition_that_is_deleted_or_damaged_holds_up_no_other(golden, asking, writable_copy):
    logs = writable_copy(golden("4.3.1", "leader-epochs", "answers").logs)
    client = asking(logs)
    (logs / "epochs-0" / "leader-epoch-checkpoint").write_text("no checkpoint")
    rows = client.fetch(12, {("epochs", 0): 0, ("epochs", 1): 0})
    assert all(row["records"] for row in rows.values())
    answer = client.ask(ApiKey.METADATA, 9, topics=({"name": "epochs"},))
    epochs = {
        row["partition_index"]: row["leader_epoch"] for row in answer["topics"][0]["partitions"]
    }
    assert epochs[0] == epochs[1] > 0, "the last batch has an epoch"
    shutil.rmtree(logs / "epochs-0")
    rows = client.fetch(12, {("epochs", 0): 0, ("epochs", 1): 0})
    assert rows["epochs", 0]["error_code"] != ErrorCode.NONE
    assert rows["epochs", 1]["records"]
    answer = client.ask(ApiKey.METADATA, 9, topics=({"name": "epochs"},))
    (row,) = answer["topics"][0]["partitions"]
    assert row["partition_index"] == 1
    (row,) = client.fetch(12, {("epochs", 0): 0}).values()
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    shutil.rmtree(logs)
    (row,) = client.fetch(12, {("epochs", 1): 0}).values()
    assert row["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    row = ask_offset(client, ("epochs", 1), {"version": 5, "timestamp": -1})
    assert row["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR


# What is left


def state_of(directory):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size, path.is_file() and path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


def test_nothing_in_the_directories_is_changed_and_nothing_stays_open(golden, writable_copy):
    logs = writable_copy(golden("4.3.1", "transactions", "answers").logs)
    before, threads = state_of(logs), threading.active_count()
    places = dict.fromkeys([("txn", 0), ("txn", 1)], 0)
    with serve(logs) as served, ProtocolClient(served.bootstrap_servers) as client:
        for isolation in (0, 1):
            client.fetch(11, places, isolation_level=isolation)
        at_rest = len(open_files(logs))
        for number in range(300):
            with ProtocolClient(served.bootstrap_servers) as hasty:
                for _ in range(4):
                    hasty.send(
                        ApiKey.FETCH, 11, max_wait_ms=0, min_bytes=1 + number % 2 * LARGEST // 2,
                        topics=({"topic": "txn", "partitions": tuple(
                            {"partition": each, "fetch_offset": 0, "partition_max_bytes": LARGEST}
                            for each in (0, 1)
                        )},),
                    )
                if number % 3:
                    hasty.socket.recv(100)
        client.fetch(11, places)
        deadline = time.monotonic() + 800
        while len(open_files(logs)) > at_rest and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(open_files(logs)) <= at_rest
    assert open_files(logs) == []
    deadline = time.monotonic() + 800
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads
    assert state_of(logs) == before
