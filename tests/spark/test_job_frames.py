"""The jobs as tables: rows of results, rows of errors, equal to the functions' results."""
from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from click.testing import CliRunner
from models.refused import change_refused, refused
from models.tiered_directory import VERSIONS, unpack
from use_cases.stores import T0, commit, record, set_topic_id, share_state, written

import kafkastore
from kafkastore import legacy, samples
from kafkastore.cli.command_list import cli
from kafkastore.errors import NotALogDirectoryError
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.jobs.best_replicas import BestReplicasJob
from kafkastore.jobs.compare import CompareJob
from kafkastore.jobs.failover import FailoverJob
from kafkastore.jobs.groups import GroupsJob
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.latency import LatencyJob
from kafkastore.jobs.listing import ListJob, list_logs
from kafkastore.jobs.predict import PredictJob, predict_start
from kafkastore.jobs.retention import RetentionJob
from kafkastore.jobs.share_lag import ShareLagJob
from kafkastore.jobs.sizing import SizingJob, sizing_rows
from kafkastore.jobs.transactions import TransactionsJob
from kafkastore.jobs.verify import VerifyJob
from kafkastore.spark import jobs
from kafkastore.spark.jobs.records import written_schema
from kafkastore.use_cases.latency import Latency, combined

DOCUMENT = Path(__file__).parents[2] / "docs" / "jobs.md"
NOW = 2_000_000_000_000


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The sample of 0.10.0.1; to be read only."""
    return samples.unpack(tmp_path_factory.mktemp("samples") / "unpacked")[-1]


@pytest.fixture(scope="module")
def broken(sample, tmp_path_factory):
    """Two log directories: a corrupt batch, a partition in both, a corrupt checkpoint."""
    first, second = (tmp_path_factory.mktemp("broken") / name for name in ("first", "second"))
    copytree(sample, first)
    second.mkdir()
    copytree(first / "up-1", second / "up-1")
    log = sorted((first / "up-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-10:] = bytes(10)
    log.write_bytes(data)
    (first / "recovery-point-offset-checkpoint").write_text("no checkpoint\n")
    (first / ".kafka_cleanshutdown").unlink()
    for path, topic_id in (("up-0", b"B"), ("up-compressed-0", b"A"), ("up-1", b"C")):
        (first / path / "partition.metadata").write_bytes(
            b"version: 0\ntopic_id: " + topic_id * 21 + b"A"
        )
    return first, second


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Two clusters with the same records in another order."""
    folder = tmp_path_factory.mktemp("clusters")
    clock = {"now": T0}
    for number, name in enumerate("12"):
        config = {} if number else {"message_timestamp_type": "LogAppendTime"}
        with written(folder / name, clock=lambda: clock["now"]) as partition:
            for step in (0, 10, 20, 30) if number else (0, 20, 10, 30):
                for index in range(2):
                    clock["now"] = T0 + step + 15
                    partition("orders", index, **config).add(record(T0 + step, b"m%d" % step))
            if not number:
                partition("alone").add(record(T0))
            for topic, offset in (("orders", 2), ("alone", 0), ("missing", 1)):
                partition("__consumer_offsets").add(commit("billing", topic, 0, offset))
    return folder / "1", folder / "2"


def rows(frame):
    """All rows, as dictionaries."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def without_place(row):
    """The columns other than the common first ones and the error."""
    return {
        name: value
        for name, value in row.items()
        if name not in ("store", "topic", "partition", "path", "error")
    }


@pytest.mark.parametrize("chosen", [None, ["up-0", ("up", 1)]])
def test_findings_are_those_of_verify(spark, broken, chosen):
    frame = jobs.verify(spark, [*broken], partitions=chosen)
    found = rows(frame)
    expected = kafkastore.verify([*broken], partitions=chosen)
    assert Counter(
        (row["finding"], row["severity"], row["file"], row["position"], row["remedy"])
        for row in found
        if row["severity"]
    ) == Counter(
        (each.kind.value, each.severity.value, str(each.path), each.position, each.remedy)
        for each in expected
    )
    assert not any(row["error"] for row in found)
    reported = {row["finding"] for row in found}
    assert {"duplicate-partition", "topic-id-mismatch"} <= reported, "findings across partitions"


def test_a_partition_in_which_nothing_is_found_has_a_row_and_counts(spark, golden):
    logs = golden("2.4.0", "headers-and-nulls", "answers").logs
    store = kafkastore.open(logs)
    frame = jobs.verify(spark, logs).persist()
    found = rows(frame)
    fine = [row for row in found if row["severity"] is None]
    assert {row["path"] for row in found if row["topic"]} == {str(log.path) for log in store}
    assert fine
    assert all(row["what"] is row["error"] is None for row in fine)
    (summary,) = rows(jobs.verify_summary(frame))
    frame.unpersist()
    assert summary == {
        "partitions": len(store.partitions),
        "segments": sum(len(log.segments) for log in store),
        "segments_read": sum(len(log.segments) for log in store),
        **{
            each: sum(1 for row in found if row["severity"] == each.replace("_", "-"))
            for each in ("data_loss_risk", "wrong_answers", "slow", "style")
        },
        "failures": 0,
    }


def test_a_partition_deleted_before_its_turn_is_a_row_with_its_error(
    spark, writable_copy, sample
):
    """A table reads its partitions when it is used."""
    copy = writable_copy(sample)
    frames = {
        "verify": jobs.verify(spark, copy),
        "inventory": jobs.inventory(spark, copy),
        "compare": jobs.compare(spark, copy, [0], now=NOW),
        "latency": jobs.latency(spark, copy),
    }
    for path in (copy / "up-0").iterdir():
        path.unlink()
    (copy / "up-0").rmdir()
    for name, frame in frames.items():
        found = rows(frame)
        failed = [row for row in found if row["error"]]
        assert [(row["topic"], row["partition"]) for row in failed] == [("up", 0)], name
        assert str(copy / "up-0") in failed[0]["error"]
        assert {(row["topic"], row["partition"]) for row in found} == {
            tuple(each) for each in kafkastore.open(sample).partitions
        }
    (summary,) = rows(jobs.verify_summary(frames["verify"]))
    assert (summary["failures"], summary["partitions"]) == (1, 3)


def test_predictions_are_those_of_predict_start(spark, broken):
    found = rows(jobs.predict_start(spark, [*broken], "2.4"))
    expected = list(predict_start([*broken], "2.4"))
    assert sorted((row["path"], row["outcome"], row["why"] or "") for row in found) == sorted(
        (str(each.path), each.outcome.value, each.why or "") for each in expected
    )
    by_path = {row["path"]: row for row in found}
    for each in expected:
        if each.recovered is None:
            continue
        row = by_path[str(each.path)]
        assert row["lost_bytes"] == each.lost_bytes
        assert row["written"] == dict(each.made_bytes)
        reasons = {name: file.reason for name, file in each.recovered.deleted.items()}
        assert row["deleted"] == reasons
        assert {name: cut["valid_bytes"] for name, cut in row["cut"].items()} == dict(
            each.recovered.cut
        )
        assert row["log_end_offset"] == each.recovered.log_end_offset
    assert any(row["cut"] for row in found)


def test_comparisons_are_those_of_compare(spark, sample):
    queried = [1_500_000_000_000, 1_500_000_020_000, 0]
    found = rows(jobs.compare(spark, sample, queried, now=NOW))
    expected = []
    for log in kafkastore.open(sample):
        for each in legacy.compare(log, queried, now=NOW):
            expected.append(
                (
                    log.topic, log.partition, each.target_timestamp, each.legacy,
                    each.broker and each.broker.offset, each.correct and each.correct.offset,
                    each.redelivered, each.missed, None,
                )
            )
    columns = [
        "topic", "partition", "target_timestamp", "legacy", "broker", "correct", "redelivered",
        "missed", "error",
    ]
    assert [tuple(row[name] for name in columns) for row in found] == expected


def test_a_time_in_remote_storage_has_its_segment_and_the_others_are_compared(spark, tmp_path):
    tiered = unpack(VERSIONS[-1], tmp_path)
    options = {"partitions": ["epochs-0"], "now": NOW}
    remote, here = rows(
        jobs.compare(spark, tiered.logs, [1_500_000_001_000, 1_500_000_090_000], **options)
    )
    assert remote["remote_segment"]["start_offset"] <= 1 <= remote["remote_segment"]["end_offset"]
    assert (remote["broker"], remote["correct"], remote["error"]) == (None, None, None)
    assert (here["remote_segment"], here["broker"], here["correct"]) == (None, 90, 90)


def test_without_times_some_are_spread_over_each_partition(spark, sample):
    counts = Counter(row["path"] for row in rows(jobs.compare(spark, sample, samples=4)))
    assert set(counts) == {str(log.path) for log in kafkastore.open(sample)}
    assert max(counts.values()) == 4


def test_surveys_have_a_row_for_each_segment_and_one_for_what_breaks_off(spark, broken):
    found = rows(jobs.inventory(spark, [*broken]))
    good = kafkastore.open(broken[0])
    for log in good:
        mine = [row for row in found if (row["topic"], row["partition"]) == log.topic_partition]
        if log.topic_partition == ("up", 1):
            (row,) = mine
            assert all(str(root / "up-1") in row["error"] for root in broken)
            continue
        complete = [row for row in mine if row["error"] is None]
        bases = [each.base_offset for each in log.segments]
        assert [row["base_offset"] for row in complete] == bases
        assert [row["size"] for row in complete] == [each.size for each in log.segments]
        errors = [row["error"] for row in mine if row["error"]]
        if log.topic_partition == ("up", 0):
            (error,) = errors
            assert "at byte" in error
            assert complete[0]["readable_end"] == sum(row["records"] for row in complete)
        else:
            assert errors == []
            assert sum(row["records"] for row in complete) == sum(1 for _ in log.records())


def test_lags_are_those_of_lag(spark, clusters):
    found = rows(jobs.lag(spark, clusters[0]))
    expected = list(kafkastore.lag(kafkastore.open(clusters[0])))
    assert [without_place(row) for row in found] == [
        without_place(row) for each in expected for row in LagJob().rows(each)
    ]
    assert [(row["topic"], row["partition"]) for row in found] == [
        each.topic_partition for each in expected
    ]
    assert [row["path"] for row in found if row["topic"] == "missing"] == [None]
    (row,) = rows(jobs.lag(spark, clusters[0], ["billing"], partitions=["orders-0"], now=T0))
    assert (row["topic"], row["now"]) == ("orders", T0)


def test_lags_of_share_groups_are_those_of_share_lag(spark, tmp_path):
    topic_id = "2P-XnPKnTZG5NwujU8kn6Q"
    with written(tmp_path) as partition:
        for number in range(4):
            partition("orders").add(record(T0 + number))
        partition("__share_group_state").add(
            share_state("shared", topic_id, 0, 1, (2, 2, 2, 1)),
            share_state("shared", topic_id, 1, -1),
        )
    set_topic_id(tmp_path / "orders-0", topic_id)
    found = rows(jobs.share_lag(spark, tmp_path))
    assert [without_place(row) for row in found] == [
        without_place(row)
        for each in kafkastore.share_lag(tmp_path)
        for row in ShareLagJob().rows(each)
    ]
    assert [(row["partition"], row["lag_records"]) for row in found] == [(0, 2), (1, None)]
    assert {row["topic"] for row in found} == {"orders"}


def test_latencies_are_those_of_latency_and_histograms_add_up(spark, clusters):
    found = rows(jobs.latency(spark, clusters[0]))
    by_topic = {each.topic: each for each in kafkastore.latency(kafkastore.open(clusters[0]))}
    orders = [row for row in found if row["topic"] == "orders"]
    assert sum(row["records"] for row in orders) == by_topic["orders"].records == 8
    values = Counter()
    for row in orders:
        values.update({each["latency_ms"]: each["records"] for each in row["histogram"]})
        assert (row["p50_ms"], row["max_ms"], row["negative_records"]) == (15, 15, 0)
    assert values == {15: 8}
    elsewhere = rows(
        jobs.latency(spark, clusters[0], partitions=["orders-1"], created_in=clusters[1])
    )
    assert [(row["partition"], row["records"]) for row in elsewhere] == [(1, 4)]


def test_latencies_of_partitions_make_those_of_a_topic():
    few = Latency("t", 1, np.array([1, 5]), np.array([2, 3]), 1, 0)
    more = Latency("t", 1, np.array([5, 9]), np.array([4, 1]), 0, 2)
    both = combined("t", [few, more])
    assert (both.values.tolist(), both.counts.tolist()) == ([1, 5, 9], [2, 7, 1])
    assert both[:2] + both[4:] == ("t", 2, 1, 2, ())
    assert combined("t", []).largest is None


def test_failovers_are_those_of_failover_and_what_cannot_be_has_an_error(spark, clusters):
    found = rows(jobs.failover(spark, *clusters))
    failed = [row for row in found if row["error"]]
    assert [row["topic"] for row in failed] == ["alone", "missing"]
    assert all(f"{row['topic']}-0" in row["error"] for row in failed)
    (expected,) = kafkastore.failover(
        *map(kafkastore.open, clusters),
        offsets={OffsetCommitKey("billing", "orders", 0): 2},
    )
    (row,) = (row for row in found if not row["error"])
    assert row["offset"] == expected.offset == 1
    assert (row["bound_timestamp"], row["lost_records"], row["duplicate_records"]) == (
        T0 + 10, expected.check.lost, expected.check.duplicates,
    )


@pytest.mark.parametrize("choice", ["skip", "stop"])
@pytest.mark.parametrize("name", ["lag", "latency", "compare"])
def test_skipped_bytes_are_listed_as_on_the_command_line(spark, broken, name, choice):
    position = OffsetCommitKey("g", "up", 0)
    chosen = {"partitions": ["up-0"]}
    options, given = {
        "lag": ({"offsets": {position: 0}}, ["--offsets", "g:up:0:0"]),
        "latency": (chosen, ["--topic", "up-0"]),
        "compare": (chosen | {"timestamps": [T0]}, ["--topic", "up-0", "--at", str(T0)]),
    }[name]
    (row,) = rows(getattr(jobs, name)(spark, broken[0], on_corrupt=choice, **options))
    arguments = [name, str(broken[0]), *given, "--on-corrupt", choice, "--json"]
    (line,) = CliRunner().invoke(cli, arguments).stdout.splitlines()
    assert row["skipped"] == json.loads(line)["skipped"]
    (skipped,) = row["skipped"]
    log = sorted((broken[0] / "up-0").glob("*.log"))[1]
    assert skipped["path"] == str(log)
    assert skipped["end_position"] == log.stat().st_size
    (failed,) = rows(getattr(jobs, name)(spark, broken[0], **options))
    assert failed["error"]
    assert failed["skipped"] is None


def test_segments_are_judged_as_by_retention(spark, sample):
    found = rows(jobs.retention(spark, sample, config={"retention.ms": 1}, now=NOW))
    job = RetentionJob({"retention.ms": 1}, NOW)
    expected = kafkastore.retention(sample, config={"retention.ms": 1}, now=NOW)
    assert list(map(without_place, found)) == [row for each in expected for row in job.rows(each)]
    assert any(row["deleted_by"] for row in found)


def test_sizes_of_partitions_add_up_to_those_of_the_store(spark, sample):
    def density(row):
        return row["kind"], row.get("index_interval_bytes"), row.get("bucket_ms")

    entries = Counter()
    for row in rows(jobs.sizing(spark, sample, intervals=[100])):
        entries[density(row)] += row["time_index_entries"]
    sizes = kafkastore.sizing(sample, intervals=[100])
    assert entries == {density(row): row["time_index_entries"] for row in sizing_rows(sizes)}


@pytest.mark.parametrize("options", [{}, {"segments": True}, {"quick": True}])
def test_partitions_and_segments_are_listed_as_by_list_logs(spark, broken, options):
    found = rows(jobs.list_logs(spark, broken[0], **options))
    job = ListJob(**options)
    listed = list(list_logs(broken[0], **options))
    expected = [row for each in listed for row in job.rows(each)]
    assert [row.get("size") for row in found] == [row.get("size") for row in expected]
    paths = [row["path"] for row in expected if "path" in row]
    assert [row["path"] for row in found if row.get("kind")] == paths
    assert any(row.get("error") for row in found) is any(each.error for each in listed)


def test_records_are_written_by_topic_and_utc_date(spark, sample, tmp_path):
    out = tmp_path / "records"
    reported = []
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        result = rows(
            jobs.records_to_parquet(spark, sample, out, progress=lambda *how: reported.append(how))
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    records = {
        (log.topic, log.partition, each.offset): each
        for log in kafkastore.open(sample)
        for each in log.records()
    }
    assert sum(row["rows"] for row in result) == len(records)
    assert not any(row["error"] for row in result)
    assert reported
    read = rows(spark.read.parquet(str(out)))
    assert len(read) == len(records)
    for row in read:
        each = records[row["topic"], row["partition"], row["offset"]]
        assert row["value"] == each.value
        day = None if each.timestamp < 0 else date.fromtimestamp(0).fromordinal(
            date(1970, 1, 1).toordinal() + each.timestamp // 86_400_000
        )
        assert row["date"] == day
    with change_refused("not-empty"):
        jobs.records_to_parquet(spark, sample, out)
    jobs.records_to_parquet(spark, sample, out, partitions=["up-1"], overwrite=True)
    assert {row["partition"] for row in rows(spark.read.parquet(str(out)))} == {1}
    with change_refused("overlap"):
        jobs.records_to_parquet(spark, sample, sample / "out")


def test_readable_records_of_a_corrupt_partition_are_written(spark, broken, tmp_path):
    result = rows(jobs.records_to_parquet(spark, broken[0], tmp_path / "out"))
    (failed,) = (row for row in result if row["error"])
    assert (failed["topic"], failed["partition"]) == ("up", 0)
    assert 0 < failed["rows"] == failed["records"]
    written_rows = spark.read.parquet(str(tmp_path / "out")).count()
    assert written_rows == sum(row["rows"] for row in result)


def test_wrong_arguments_are_refused_before_anything_runs(spark, sample, tmp_path):
    with pytest.raises(NotALogDirectoryError):
        jobs.verify(spark, tmp_path / "none")
    with pytest.raises(KeyError):
        jobs.inventory(spark, sample, partitions=["none-7"])
    with refused("sample"):
        jobs.verify(spark, sample, sample=0)
    with refused("by"):
        jobs.failover(spark, sample, sample, by="none")
    with refused("isolation"):
        jobs.lag(spark, sample, isolation="none")


def files_of(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_examples_run(spark, sample, tmp_path, monkeypatch, capfd):
    """In the folder that they are in, which is not the one that Spark was started in."""
    copytree(sample, tmp_path / "kafka-logs")
    monkeypatch.chdir(tmp_path)
    # Spark itself begins relative paths where it was started.
    text = DOCUMENT.read_text(encoding="utf-8")
    text = text.replace('"by-date"', repr(str(tmp_path / "by-date")))
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 5
    before = files_of(tmp_path / "kafka-logs")
    known = {}
    for example in examples:
        exec(compile(example, "jobs.md", "exec"), known)
    assert "wrong_answers" in capfd.readouterr().out
    assert (tmp_path / "by-date" / "topic=up" / "date=2017-07-14").is_dir()
    for path in known["found"].select("path").distinct().collect():
        assert path[0].startswith("kafka-logs")
    known["found"].unpersist()
    assert files_of(tmp_path / "kafka-logs") == before  # migrated, and undone
    assert known["done"].where("files > 0").count() > 0


def test_columns_are_those_of_the_document():
    """Each table's chapter lists its columns, in order, with their types."""
    text = DOCUMENT.read_text(encoding="utf-8")
    tables = (
        ("inventory", InventoryJob().schema()),
        ("verify", VerifyJob().schema()),
        ("predict_start", PredictJob().schema()),
        ("compare", CompareJob().schema()),
        ("lag", LagJob().schema()),
        ("share_lag", ShareLagJob().schema()),
        ("latency", LatencyJob().schema()),
        ("failover", FailoverJob().schema()),
        ("retention", RetentionJob().schema()),
        ("sizing", SizingJob().schema()),
        ("transactions", TransactionsJob().schema()),
        ("groups", GroupsJob().schema()),
        ("best_replicas", BestReplicasJob().schema()),
        ("list_logs", ListJob().schema()),
        ("records_to_parquet", written_schema()),
    )
    # These have no chapter with a list of columns.
    others = ["verify_summary", "latest_records", "migrate", "reindex"]
    assert sorted([*(name for name, _ in tables), *others]) == sorted(jobs.__all__)
    for name, schema in tables:
        from pyspark.sql.pandas.types import from_arrow_schema

        chapter = text.split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        listed = [
            (column.strip(" `"), cells[1].strip())
            for line in chapter.splitlines()
            if line.startswith("| `")
            for cells in [line.strip("|").split("|")]
            for column in cells[0].split(",")
        ]
        fields = [
            (each.name, each.dataType.simpleString())
            for each in from_arrow_schema(schema)
            if each.name not in ("store", "topic", "partition", "path", "error")
        ]
        assert listed == fields, name
        assert json.dumps(listed)


def test_jobs_that_write_take_a_store(spark, sample, tmp_path):
    store = kafkastore.open(sample)
    records = sum(len([*log.records()]) for log in store)
    written = jobs.records_to_parquet(spark, [store], tmp_path / "out")
    assert sum(row.rows for row in written.collect()) == records
    copy = kafkastore.open(copytree(sample, tmp_path / "copy"))
    assert [row.error for row in jobs.migrate(spark, copy).collect()] == [None] * len([*copy])
    assert not [*kafkastore.verify(tmp_path / "copy")]
