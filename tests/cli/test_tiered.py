"""Tiered topics in ls, offsets, retention and predict."""

import shutil

import pytest
from models.tiered_directory import VERSIONS, unpack
from pyarrow import parquet

from kafkastore import RemoteSource, RemoteStorage
from kafkastore.log.remote_metadata import UnknownRemote

REMOTE_FIELDS = {"remote_segments", "remote_size", "highest_remote_offset"}


@pytest.fixture(scope="module")
def tiered(tmp_path_factory):
    return unpack(VERSIONS[-1], tmp_path_factory.mktemp("tiered"))


@pytest.fixture
def without_remote_log_metadata(tiered, tmp_path):
    logs = tiered.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    return logs


def listed(run, *arguments):
    """The rows of partitions by topic."""
    rows = run("ls", *arguments, "--json").lines
    return {row["topic"]: row for row in rows if row["kind"] == "partition"}


def test_ls_shows_what_is_remote(run, tiered):
    rows = listed(run, tiered.logs)
    for topic in tiered.topics:
        row, storage = rows[topic], tiered.storage(topic)
        assert row["remote_storage"] == storage
        assert row["remote_source"] == RemoteSource.CONFIGURATION
        assert row["log_start_offset"] == tiered.broker_offset(topic, -2)
        assert row["local_log_start_offset"] == tiered.broker_offset(topic, -4)
        assert (row.keys() >= REMOTE_FIELDS) == (storage is not RemoteStorage.OFF)
        if storage is RemoteStorage.ON:
            highest = row["highest_remote_offset"]
            assert (-1 if highest is None else highest) == tiered.broker_offset(topic, -5)
    assert rows["tail"]["remote_segments"] == 4
    assert rows["tail"]["remote_size"] > 4000
    assert rows["emptied"]["remote_segments"] == 0


def test_corrupt_records_about_remote_segments_are_reported(run, tiered, tmp_path):
    logs = tiered.copy_to(tmp_path / "logs")
    for path in logs.glob("__remote_log_metadata-*/*.log"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    with_metadata = run("ls", logs, "--json")
    rows = {row["topic"]: row for row in with_metadata.lines if row["kind"] == "partition"}
    assert rows["tail"]["unknown_remote"] == UnknownRemote.CORRUPT
    assert with_metadata.code == 1
    shutil.rmtree(logs / "__cluster_metadata-0")
    for command in (("ls",), ("offsets", "--at", "earliest"), ("retention",), ("predict",)):
        ran = run(command[0], logs, "--topic", "tail", *command[1:])
        assert ran.code in (1, 2), ran
        assert "__remote_log_metadata" in ran.err
    assert run("ls", logs, "--topic", "plain").code == 0


def test_the_table_has_the_remote_columns_only_if_a_partition_is_tiered(run, tiered):
    shown = run("ls", tiered.logs, "--topic", "tail").out.splitlines()
    assert {"remote", "local"} <= set(shown[1].split())
    shown = run("ls", tiered.logs, "--topic", "plain").out.splitlines()
    assert not {"remote", "local"} & set(shown[1].split())


def test_ls_says_that_the_log_start_is_not_certain(run, tiered, without_remote_log_metadata):
    logs = without_remote_log_metadata
    rows = listed(run, logs)  # the metadata log is there
    assert rows["tail"]["remote_storage"] == RemoteStorage.ON
    assert rows["tail"]["unknown_remote"] == UnknownRemote.NO_METADATA
    assert "remote_segments" not in rows["tail"]
    shutil.rmtree(logs / "__cluster_metadata-0")
    row = listed(run, logs)["tail"]
    assert row["remote_storage"] == RemoteStorage.OFF
    assert row["log_start_offset"] == tiered.broker_offset("tail", -4)
    assert row["log_start_if_tiered"] == tiered.broker_offset("tail", -2)
    row = listed(run, logs, "--metadata", tiered.logs)["tail"]
    assert row["remote_storage"] == RemoteStorage.ON
    assert row["log_start_if_tiered"] is None
    assert row["log_start_offset"] == tiered.broker_offset("tail", -2)


def test_an_offset_in_remote_storage_has_no_batch_here(run, tiered):
    ran = run("ls", tiered.logs, "--topic", "tail", "--offset", "3")
    assert ran.code == 2
    (row,) = run("ls", tiered.logs, "--topic", "tail", "--offset", "38", "--json").lines
    assert row["base_offset"] <= 38 <= row["last_offset"]


def test_offsets_names_the_remote_segment(run, tiered):
    rows = {row["timestamp"]: row for row in tiered.rows("epochs")}
    times = sorted(time for time in rows if 0 < time < 2**62)[::20]
    arguments = [part for time in times for part in ("--at", str(time))]
    ran = run(
        "offsets", tiered.logs, "--topic", "epochs", *arguments, "--rules", "4.2", "--json"
    )
    assert ran.code == 0
    kinds = set()
    for answer in ran.lines:
        theirs = rows[answer["target_timestamp"]]["offset"]
        remote = answer["remote_segment"]
        kinds.add(remote is None)
        if remote is None:
            assert (-1 if answer["offset"] is None else answer["offset"]) == theirs
        else:
            assert remote["start_offset"] <= theirs <= remote["end_offset"]
            assert answer["offset"] is None
    assert kinds == {True, False}


def test_compare_names_the_remote_segment_and_compares_the_other_times(run, tiered, tmp_path):
    def compared(*options):
        return run(
            "compare", tiered.logs, "--topic", "epochs", "--at", "1500000001000",
            "--at", "1500000090000", *options,
        )

    ran = compared("--json")
    assert ran.code == 0
    remote, here = ran.lines
    assert remote["remote_segment"]["start_offset"] <= 1 <= remote["remote_segment"]["end_offset"]
    assert (remote["broker"], remote["correct"], remote["missed"]) == (None, None, None)
    assert (here["remote_segment"], here["broker"], here["correct"]) == (None, 90, 90)
    (row, total) = compared("--json", "--summary").lines
    assert row["remote_times"] == total["remote_times"] == 1
    shown = [each.split() for each in compared().out.splitlines()]
    assert shown[1][3:5] == ["remote", "remote"]
    assert shown[2][3:5] == ["90", "90"]
    assert compared("--summary").out.splitlines()[0].split()[-1] == "remote"
    file = tmp_path / "compared.parquet"
    assert compared("--format", "parquet", "-o", file).code == 0
    segments = parquet.read_table(file).column("remote_segment").to_pylist()
    assert segments == [remote["remote_segment"], None]


def test_rules_that_name_the_same_remote_segment_agree(run, tiered):
    ran = run(
        "offsets", tiered.logs, "--topic", "tail", "--at", "1500000010000",
        "--rules", "4.2", "--rules", "correct", "--explain", "--json",
    )
    first, second = ran.lines
    assert first["remote_segment"] == second["remote_segment"]
    assert first["explanation"] is first["note"] is first["correct"] is None
    for option in ((), ("--explain",)):
        assert run(
            "offsets", tiered.logs, "--topic", "tail", "--at", "1500000010000", *option
        ).code == 0


def test_an_unknown_answer_is_reported(run, tiered, without_remote_log_metadata):
    ran = run(
        "offsets", without_remote_log_metadata, "--topic", "tail", "--at", "latest-tiered"
    )
    assert ran.code != 0


def test_retention_shows_the_local_limits(run, tiered):
    rows = {
        row["topic"]: row
        for row in run("retention", tiered.logs, "--json").lines if row["kind"] == "partition"
    }
    assert rows["epochs"]["local_retention_bytes"] == 4000
    assert rows["epochs"]["retention_bytes"] == -1
    assert rows["epochs"]["config_sources"]["local.retention.bytes"] == "topic"
    assert rows["plain"]["remote_storage"] == RemoteStorage.OFF
    assert "local.retention.bytes" not in rows["plain"]["config_sources"]
    assert run("retention", tiered.logs, "--segments", "--retention-ms", "1").code == 0


def test_predict_keeps_the_log_start(run, tiered):
    starts = {
        row["topic"]: row["log_start_offset"] for row in run("predict", tiered.logs, "--json").lines
    }
    assert {topic: starts[topic] for topic in tiered.topics} == {
        topic: tiered.broker_offset(topic, -2) for topic in tiered.topics
    }
