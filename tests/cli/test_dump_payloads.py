"""What ``dump`` shows of records: their fields, contents of Kafka's own topics, and counts."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from models import internal_topics
from models.record_format import GZIP, Batch, Row, emptied, marker
from models.seed import examples

from kafkastore.cli.dump.payloads import decoder_for
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.formats.topics import cluster_metadata
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.formats.topics.transaction_state import TransactionState

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Return a function that writes a log of batches into a directory."""

    def write(*batches: Batch, directory: str = "t-0") -> Path:
        path = tmp_path / directory / "00000000000000000000.log"
        path.parent.mkdir()
        path.write_bytes(b"".join(batch.data for batch in batches))
        return path

    return write


def decoded(run: Run, path: Path) -> list[dict[str, Any] | None]:
    """Return the decoded payload of each dumped record."""
    rows = run("dump", "--records", path, "--json").lines
    return [row.get("decoded") for row in rows if row["kind"] == "record"]


BATCH = Batch(
    (Row(7, 1_500_000_000_000, b"k", b"v"),
     Row(9, 1_500_000_000_005, None, b"\xff", (("h", b"1"), ("h", None)))),
    codec=GZIP, first_offset=6, last_offset_kept=11, leader_epoch=3, producer_id=42,
    producer_epoch=5, base_sequence=13, is_transactional=True,
)


def test_every_field_of_a_batch_and_of_its_records_is_shown(run: Run, written: Write) -> None:
    path = written(BATCH, marker(12, 1_500_000_000_009), emptied(13, 20, 1_500_000_000_010))
    batch, first, second, control, end, kept = run("dump", "--records", path, "--json").lines
    assert {name: batch[name] for name in set(batch) - {"kind", "file", "crc"}} == {
        "position": 0, "size": len(BATCH.data), "base_offset": 6, "last_offset": 11, "magic": 2,
        "codec": "gzip", "count": 2, "max_timestamp": 1_500_000_000_005,
        "timestamp_type": "CreateTime", "leader_epoch": 3, "producer_id": 42, "producer_epoch": 5,
        "base_sequence": 13, "is_transactional": True, "is_control": False, "control_type": None,
        "delete_horizon": None, "crc_valid": True,
    }
    assert batch["crc"] == int.from_bytes(BATCH.data[17:21], "big")
    shared = {
        "kind": "record", "file": str(path), "timestamp_type": "CreateTime", "leader_epoch": 3,
    }
    assert first == shared | {
        "offset": 7, "timestamp": 1_500_000_000_000, "key": "k", "value": "v", "headers": []}
    assert second == shared | {
        "offset": 9, "timestamp": 1_500_000_000_005, "key": None, "value_base64": "/w==",
        "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}]}
    assert (control["is_control"], control["control_type"], end["offset"]) == (True, "COMMIT", 12)
    assert (kept["base_offset"], kept["last_offset"], kept["count"]) == (13, 20, 0)
    shown = run("dump", "--records", path).out
    for part in ("42/5/13", "gzip", "transactional", "control COMMIT", "headers h=1, h=null"):
        assert part in shown


@pytest.mark.parametrize(("more", "count"), [(-1, 1), (0, 2), (1, 2), (10_000, 3)])
def test_batches_that_end_within_max_bytes_are_shown(
    run: Run, written: Write, more: int, count: int
) -> None:
    batches = [Batch((Row(offset, 5, b"k", b"v" * 50),)) for offset in range(3)]
    path = written(*batches)
    limit = 2 * len(batches[0].data) + more
    ran = run("dump", path, "--json", "--max-bytes", limit)
    assert [row["base_offset"] for row in ran.lines] == [*range(count)]
    assert (ran.code, ran.err) == (0, "")
    shown = run("dump", path, "--max-bytes", limit)
    assert len(shown.out.splitlines()) == count + 1


def test_bytes_after_max_bytes_are_not_read(run: Run, written: Write) -> None:
    good = Batch((Row(0, 5, b"k", b"v"),))
    path = written(good)
    path.write_bytes(good.data + b"\xff" * 100)
    assert run("dump", path).code == 2
    ran = run("dump", path, "--max-bytes", len(good.data))
    assert (ran.code, ran.err) == (0, "")
    assert run("dump", path, "--max-bytes", "-1").code == 2
    assert run("dump", path, "--max-bytes", 0, "--json").out == ""


KEY = OffsetCommitKey("billing", "orders", 3)
MEMBER = {"member_id": "m-1", "client_id": "client", "client_host": "/10.0.0.1",
          "session_timeout": 45_000, "subscription": b"\0\1", "rebalance_timeout": 300}
COMMITS = Batch((
    Row(0, 5, internal_topics.pack_offset_commit_key(KEY), internal_topics.pack_offset_commit_value(
        OffsetAndMetadata(42, "", 1_500_000_000_000, leader_epoch=2), 3)),
    Row(1, 5, internal_topics.pack_offset_commit_key(KEY), None),
    Row(2, 5, internal_topics.pack_group_key("billing"), internal_topics.pack_group_value(
        3, protocol_type="consumer", generation=7, protocol="range", leader="m-1",
        members=(MEMBER,))),
    Row(3, 5, bytes.fromhex("0003 0001 67"), bytes.fromhex("0000 00000005 01 07 02 aabb")),
    Row(4, 5, internal_topics.pack_offset_commit_key(KEY)[:9], b""),
    Row(5, 5, internal_topics.pack_offset_commit_key(KEY), b"\x7f\xff"),
    Row(6, 5, None, None),
))


def test_commits_and_groups_are_reported_by_their_fields(run: Run, written: Write) -> None:
    path = written(COMMITS, marker(7, 5), directory="__consumer_offsets-49")
    commit, tombstone, group, newer, torn, foreign, keyless, end = decoded(run, path)
    key = {"group": "billing", "topic": "orders", "partition": 3}
    assert commit == {
        "type": "OffsetCommit", "version": 3, "key": key,
        "value": {"offset": 42, "metadata": "", "commit_timestamp": 1_500_000_000_000,
                  "leader_epoch": 2, "expire_timestamp": None, "topic_id": None},
    }
    assert tombstone == {"type": "OffsetCommit", "key": key, "value": None}
    assert group is not None
    assert group["key"] == {"group": "billing"}
    assert group["value"]["generation"] == 7
    (member,) = group["value"]["members"]
    assert (member["member_id"], member["subscription"]) == ("m-1", "\0\1")
    assert newer == {
        "type": "ConsumerGroupMetadata", "version": 0, "key": {"group_id": "g"},
        "value": {"epoch": 5, "metadata_hash": 0, "unknown_tagged_fields": {"7": "aabb"}},
    }
    assert foreign == {
        "type": "OffsetCommit", "version": 32767, "key": key, "unparsed": ""}
    for broken in (torn, keyless):
        assert broken is not None
        assert set(broken) == {"error"}
    assert end == {"type": "COMMIT", "value": {"coordinator_epoch": 0}}
    shown = run("dump", "--records", path)
    assert shown.code == 0
    assert '"partition": 3}, "value": {"offset": 42' in shown.out


def test_transactional_ids_are_reported_by_their_fields(run: Run, written: Write) -> None:
    key = internal_topics.pack_transaction_key("tx-a")
    data = internal_topics.pack_transaction_value(
        0, producer_id=9, producer_epoch=2, transaction_timeout_ms=60_000,
        transaction_status=TransactionState.PREPARE_COMMIT,
        transaction_partitions=({"topic": "orders", "partition_ids": (0, 3)},),
        transaction_last_update_timestamp_ms=1_500_000_000_001,
        transaction_start_timestamp_ms=1_500_000_000_000,
    )
    path = written(
        Batch((Row(0, 5, key, data), Row(1, 5, key, None))),
        directory="__transaction_state-0",
    )
    state, tombstone = decoded(run, path)
    assert state is not None
    assert state["key"] == {"transactional_id": "tx-a"}
    assert state["value"]["transaction_status"] == "PREPARE_COMMIT"
    assert state["value"]["transaction_partitions"] == [
        {"topic": "orders", "partition_ids": [0, 3]}]
    assert state["value"]["next_producer_id"] is None
    assert tombstone == {
        "type": "TransactionLog", "key": {"transactional_id": "tx-a"}, "value": None}


SCRAM = internal_topics.pack_frame(
    cluster_metadata.RECORDS, 11, 0, name="alice", mechanism=1, salt=b"s4lt", stored_key=b"st0red",
    server_key=b"s3rver", iterations=4096,
)
PASSWORD, PLAIN = (
    internal_topics.pack_frame(
        cluster_metadata.RECORDS, 4, 0, resource_type=4, resource_name="1", name=name, value=value)
    for name, value in (("ssl.keystore.password", "hunter2"), ("log.retention.ms", "72"))
)
NEWER = bytes((1, 11, 9)) + b"s4lt"
CORRUPT = SCRAM[:-3]
METADATA = Batch(tuple(
    Row(offset, 5, None, value)
    for offset, value in enumerate((SCRAM, PASSWORD, PLAIN, NEWER, CORRUPT))
))
SECRETS = ("s4lt", "st0red", "s3rver", "hunter2", "czR", "aHVudGVyMg")


def test_secrets_are_masked(run: Run, written: Write) -> None:
    path = written(METADATA, directory="__cluster_metadata-0")
    scram, password, plain, newer, corrupt = decoded(run, path)
    assert scram is not None
    assert password is not None
    assert plain is not None
    assert scram["value"]["name"] == "alice"
    assert {scram["value"][name] for name in ("salt", "stored_key", "server_key")} == {"(masked)"}
    assert password["value"]["value"] == "(masked)"
    assert plain["value"]["value"] == "72"
    assert newer == {"type": "UserScramCredentialRecord", "version": 9, "unparsed": "(masked)"}
    assert corrupt is not None
    assert set(corrupt) == {"error"}
    for options in (("--json",), (), ("--full",)):
        shown = run("dump", "--records", path, *options).out
        assert not any(secret in shown for secret in SECRETS)
        assert "log.retention.ms" in shown


def test_secrets_are_shown_if_asked_for(run: Run, written: Write) -> None:
    path = written(METADATA, directory="__cluster_metadata-0")
    rows = run("dump", "--records", "--show-secrets", path, "--json").lines
    scram, password, *_ = (row["decoded"] for row in rows if row["kind"] == "record")
    assert scram["value"]["salt"] == "s4lt"
    assert password["value"]["value"] == "hunter2"


def test_the_names_of_snapshots_say_what_their_records_are(run: Run, written: Write) -> None:
    path = written(METADATA, directory="disk")
    for name in ("00000000000000000123-0000000004.checkpoint", "bootstrap.checkpoint"):
        snapshot = path.with_name(name)
        snapshot.write_bytes(METADATA.data)
        assert decoded(run, snapshot)[2] == {
            "type": "ConfigRecord", "version": 0,
            "value": {"resource_type": 4, "resource_name": "1", "name": "log.retention.ms",
                      "value": "72"},
        }


QUORUM_STATES = {
    '{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}':
        (0, 1, 7, -1, None, [1, 2]),
    '{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"QJ3TNgAjSBW0wOWHMa9OIg",'
    '"data_version":1}':
        (1, -1, 7, 3, "QJ3TNgAjSBW0wOWHMa9OIg", None),
}


@pytest.mark.parametrize(("text", "fields"), QUORUM_STATES.items())
def test_a_quorum_state_is_shown_by_its_fields(
    run: Run, tmp_path: Path, text: str, fields: tuple[object, ...]
) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(text)
    (row,) = run("dump", path, "--json").lines
    assert tuple(row.values()) == ("quorum_state", str(path), *fields)
    assert "leader epoch" in run("dump", path).out


@pytest.mark.parametrize("text", [
    "", "[]", "{", '{"data_version":2}', '{"data_version":0}', '{"data_version":true}', "\xff",
    '{"leaderId":1,"leaderEpoch":7,"votedId":-1,"data_version":1}',
    '{"leaderId":1,"leaderEpoch":7,"votedId":-1,"currentVoters":[1],"data_version":0}',
    '{"leaderId":4000000000,"leaderEpoch":7,"votedId":-1,"data_version":0}',
])
def test_a_corrupt_quorum_state_is_named(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(text, "latin-1")
    ran = run("dump", path)
    assert ran.code == 2
    assert str(path) in ran.err


def test_records_of_other_topics_are_not_decoded(run: Run, written: Write) -> None:
    for directory in ("orders-0", "__consumer_offsets", "my__consumer_offsets-0"):
        assert decoded(run, written(COMMITS, directory=directory)) == [None] * len(COMMITS.rows)


@given(
    st.sampled_from([
        "__consumer_offsets-0", "__transaction_state-0", "__share_group_state-0",
        "__cluster_metadata-0", "__remote_log_metadata-0",
    ]),
    st.binary(max_size=40) | st.integers(-1, 5).map(lambda kind: kind.to_bytes(2, signed=True)),
    st.none() | st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\0\1" + rest),
)
@settings(max_examples=examples(200), deadline=None)
def test_any_bytes_are_decoded_or_reported_as_an_error(
    directory: str, key: bytes, value: bytes | None
) -> None:
    decode = decoder_for(Path(directory, "00000000000000000000.log"))
    assert decode is not None
    found = decode(Record(0, 5, TimestampType.CREATE_TIME, key, value, (), None))
    assert json.loads(json.dumps(found.fields)) == found.fields
    assert ("error" in found.fields) != ("type" in found.fields)


@pytest.mark.golden_cases(names="wide", answers="answers")
def test_records_of_every_broker_in_its_internal_topics_are_decoded(
    run: Run, golden_case: Any
) -> None:
    files = [
        path for topic in ("__consumer_offsets", "__transaction_state")
        for path in golden_case.logs.glob(f"{topic}-*/*.log") if path.stat().st_size
    ]
    for path in files:
        found = decoded(run, path)
        assert found
        for each in found:
            assert each is not None
            assert "error" not in each
            assert each["value"] is not None
