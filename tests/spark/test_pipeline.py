"""The full pipeline over the samples, compared with the answers of real brokers."""
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset
import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import change_refused
from pyarrow import parquet
from spark.frames import TIMESTAMP_TYPES, decoded

import kafkastore
from kafkastore import samples
from kafkastore.changes.apply import apply
from kafkastore.changes.partition_changes import apply_partition
from kafkastore.changes.undo import undo
from kafkastore.errors import NotALogDirectoryError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.spark.pipeline.output_directory import MARK, store_names
from kafkastore.spark.pipeline.report import render
from kafkastore.spark.pipeline.steps import run_pipeline

FSYNC = os.fsync
NOW = 2_000_000_000_000
VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1")
STEPS = [
    "start Spark", "inventory", "verify", "offsets", "copy", "plan", "migrate", "verify again",
    "records to Parquet", "offsets again", "report",
]


class Diary:
    """Progress that is written down."""

    def __init__(self):
        self.events = []
        self.flushed = []

    def flush(self, descriptor):
        FSYNC(descriptor)
        self.flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def step_started(self, step, unit, total):
        self.events.append(("started", step))

    def step_advanced(self, step, done, total):
        assert total is None or done <= total
        self.events.append(("advanced", step))

    def step_finished(self, step, seconds, summary):
        assert seconds >= 0
        assert summary
        self.events.append(("finished", step))


def contents(root):
    """Every file below a directory: digest and mtime."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The samples, unpacked."""
    return samples.unpack(tmp_path_factory.mktemp("samples") / "unpacked")


@pytest.fixture(scope="module")
def queried(golden):
    """Every timestamp that the brokers were queried for."""
    times = set()
    for version in VERSIONS:
        for name in ("answers", "answers-upgraded-2.4.0"):
            for partition in golden(version, "upgrade", name).answers["partitions"].values():
                for question in ("list_offsets", "list_offsets_v0"):
                    times |= {row["timestamp"] for row in partition.get(question, ())}
    return sorted(time for time in times if time >= 0)


@pytest.fixture(scope="module")
def auto(spark, sources, tmp_path_factory):
    """A run as `make run` does it, and what it reported."""
    diary = Diary()
    before = [contents(source) for source in sources]
    out = tmp_path_factory.mktemp("auto") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", diary.flush)
        result = run_pipeline(sources, out, spark=spark, progress=diary)
    assert [contents(source) for source in sources] == before, "the sources are left alone"
    return result, diary


@pytest.fixture(scope="module")
def empty(spark, sources, queried, tmp_path_factory):
    """A run that creates empty indexes as brokers do, with the brokers' queries."""
    out = tmp_path_factory.mktemp("empty") / "out"
    return run_pipeline(sources, out, mode="empty", timestamps=queried, spark=spark)


def store(result, name):
    return next(each for each in result.stores if each.name == name)


@pytest.mark.parametrize("version", VERSIONS)
def test_legacy_answers_are_those_of_the_broker(empty, golden, version):
    answers = golden(version, "upgrade", "answers").answers
    now = sorted((empty.now, answers["asked_at_ms"]))
    compared = 0
    for name, partition in answers["partitions"].items():
        key = kafkastore_partition(name)
        for answered in (store(empty, version).before, store(empty, version).after):
            found = {row.target_timestamp: row.legacy for row in answered[key]}
            for row in partition["list_offsets_v0"]:
                time = row["timestamp"]
                if time < 0 or now[0] <= time < now[1] or row["max_num_offsets"] != 1:
                    continue
                assert found[time] == (row["offsets"] or [None])[0], (name, row)
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_after_an_empty_migration_are_those_of_the_upgraded_broker(empty, golden, version):
    answers = golden(version, "upgrade", "answers-upgraded-2.4.0").answers
    compared = 0
    for name, partition in answers["partitions"].items():
        found = {
            row.target_timestamp: row.broker
            for row in store(empty, version).after[kafkastore_partition(name)]
        }
        for row in partition["list_offsets"]:
            if row["timestamp"] >= 0 and not row["error"] and row["isolation"] == 0:
                expected = None if row["offset"] < 0 else row["offset"]
                assert found[row["timestamp"]] == expected, (name, row)
                compared += 1
    assert compared > 50


def kafkastore_partition(name):
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def test_the_pipeline_has_its_steps_and_explains_them(auto):
    result, diary = auto
    assert [step.name for step in result.steps] == STEPS
    assert [step for what, step in diary.events if what == "started"] == STEPS
    assert [step for what, step in diary.events if what == "finished"] == STEPS
    assert {step for what, step in diary.events if what == "advanced"} >= {
        "inventory", "verify", "copy", "plan", "migrate", "offsets", "records to Parquet",
    }
    assert result.problems == []


def test_parquet_files_are_durable_before_their_step_counts_as_done(auto):
    result, diary = auto
    names = [Path(path).name for path in diary.flushed]
    step = names.index("records-to-Parquet.json.tmp")
    written = {path.name for path in result.records.rglob("*.parquet")}
    assert written
    assert written <= set(names[:step])
    assert {"report.html.tmp", "result.json"} <= set(names[step:])


def test_after_the_migration_there_are_no_findings_and_lookups_are_right(auto):
    result, _ = auto
    summary = {row.store: row for row in result.summary()}
    assert set(summary) == set(VERSIONS)
    for name, row in summary.items():
        assert row.findings_after == 0
        assert row.after.broker == row.after.times > 0
        assert row.records == sum(
            1 for log in kafkastore.open(store(result, name).path) for _ in log.records()
        )
    assert summary["0.10.0.1"].before.broker < summary["0.10.0.1"].before.times
    assert summary["0.10.0.1"].findings_before > 0


def test_a_migrated_copy_has_every_file_of_its_source_and_time_indexes(auto):
    result, _ = auto
    assert not list((result.out / "migrated").glob("*undo*"))
    for each in result.stores:
        source, copy = contents(Path(each.path)), contents(Path(each.migrated))
        made = set(copy) - set(source)
        assert {name: copy[name] for name in source if name != ".lock"} == {
            name: state for name, state in source.items() if name != ".lock"
        }
        assert len(made) == each.files_made == each.segments
        assert all(name.endswith(".timeindex") for name in made)


@pytest.mark.parametrize("version", VERSIONS)
def test_parquet_holds_the_records_that_the_broker_gave(auto, golden, version):
    result, _ = auto
    expected = []
    answers = golden(version, "upgrade", "answers").answers
    for name, partition in answers["partitions"].items():
        for offset, timestamp, kind, key, value, _, epoch in partition["records"]:
            expected.append(
                (
                    *kafkastore_partition(name), offset, timestamp * 1000, TIMESTAMP_TYPES[kind],
                    decoded(key), decoded(value), None, -1 if epoch is None else epoch,
                )
            )
    folder = result.records / f"store={version}"
    table = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
    found = [
        (
            row["topic"], row["partition"], row["offset"], timestamp, row["timestampType"],
            row["key"], row["value"], row["headers"], row["leader_epoch"],
        )
        for row, timestamp in zip(
            table.to_pylist(), table["timestamp"].cast("int64").to_pylist(), strict=True
        )
    ]
    assert sorted(found) == sorted(expected)
    for path in folder.rglob("*.parquet"):
        written = parquet.read_table(path, partitioning=None)["offset"].to_pylist()
        assert written == sorted(written)


def test_result_json_equals_the_result(auto):
    result, _ = auto
    read = json.loads((result.out / "result.json").read_text())
    assert [each["name"] for each in read["stores"]] == [each.name for each in result.stores]
    assert read["stores"][0]["summary"]["records"] == result.stores[0].records
    partition, surveyed = read["stores"][0]["partitions"][0], result.stores[0].partitions[0]
    row = partition["answers_after"][0]
    assert set(row) >= {"target_timestamp", "legacy", "kip_33", "broker", "correct"}
    bounds = ("log_start_offset", "log_end_offset", "readable_end")
    assert list(InventoryJob().rows(surveyed)) == [
        {name: partition[name] for name in bounds} | segment for segment in partition["segments"]
    ]


@pytest.fixture
def earlier(auto, tmp_path):
    """The output of an earlier run."""
    result, _ = auto
    return shutil.copytree(result.out, tmp_path / "out")


def assert_same_as_in(result, several):
    """Check that a run of one store gives the same as a run of several."""
    (each,) = result.stores
    assert result.summary() == [store(several, each.name).summary()]
    assert contents(Path(each.migrated)) == contents(Path(store(several, each.name).migrated))


def test_a_run_again_replaces_the_output_and_is_the_same(spark, auto, earlier, sources):
    (earlier / "records" / "stale").touch()
    again = run_pipeline(sources[0], earlier, spark=spark)
    assert again.out == earlier
    assert not (earlier / "records" / "stale").exists()
    assert [path.name for path in (earlier / "migrated").iterdir()] == [sources[0].name]
    assert_same_as_in(again, auto[0])


def test_in_place_the_directory_changes_and_can_be_restored(
    spark, sources, tmp_path
):
    logs = shutil.copytree(sources[-1], tmp_path / "kafka-logs")
    before = contents(logs)
    result = run_pipeline(logs, tmp_path / "out", in_place=True, spark=spark)
    (each,) = result.stores
    assert each.migrated == each.path == str(logs)
    assert not (result.out / "migrated").exists()
    assert len(contents(logs)) == len(before) + each.files_made
    assert Path(each.undo_area).parent == tmp_path
    undo(each.undo_area)
    assert contents(logs) == before


@pytest.mark.parametrize("place", ["copy", "out", "out/copy"])
def test_a_copy_elsewhere_is_not_made_where_something_is(spark, sources, tmp_path, place):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    with change_refused("not-empty" if place == "copy" else "overlap"):
        run_pipeline(sources[0], tmp_path / "out", copy_to=tmp_path / place, spark=spark)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]


@pytest.mark.soak
def test_a_copy_elsewhere_changes_and_can_be_restored(spark, auto, sources, tmp_path):
    copy, source = tmp_path / "copy", sources[-1]
    options = {"copy_to": copy, "spark": spark}
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(source, tmp_path / "out", progress=Interrupting("plan"), **options)
    with change_refused("not-empty", copy):
        run_pipeline(source, tmp_path / "out", **options)
    result = run_pipeline(source, tmp_path / "out", resume=True, **options)
    (each,) = result.stores
    assert each.migrated == str(copy)
    assert_same_as_in(result, auto[0])
    assert not (result.out / "migrated").exists()
    assert Path(each.undo_area).parent == tmp_path
    undo(each.undo_area)
    files = contents(source)
    del files[".lock"]  # which no broker shares
    assert contents(copy) == files


class Interrupting(Diary):
    """Progress that is interrupted, as by Ctrl-C, when a step begins."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def step_started(self, step, unit, total):
        super().step_started(step, unit, total)
        if step == self.at:
            raise KeyboardInterrupt


def comparable(result):
    """The parts of a result that are equal for two runs over the same data: all but times."""
    steps = [step._replace(seconds=0) for step in result.steps]
    same = replace(result, now=NOW, steps=steps)
    return json.loads(same.to_json()), render(same)


def run_interrupted_at_each_step(*arguments, **options):
    """Run the pipeline, interrupted at each step once, to its end."""
    steps = [step for step in STEPS if step != "copy" or "in_place" not in options]
    for number, step in enumerate(steps):
        diary = Interrupting(step)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(*arguments, resume=True, progress=diary, **options)
        advanced = {each for what, each in diary.events if what == "advanced"}
        if "in_place" in options:
            advanced.discard("migrate")  # checked again: it may have been undone
        assert advanced <= {steps[number - 1]}, "what was done is not done again"
    return run_pipeline(*arguments, resume=True, **options)


@pytest.mark.soak
def test_a_run_interrupted_at_each_step_has_the_same_result(spark, sources, tmp_path):
    out = tmp_path / "out"
    complete = run_pipeline(sources[-1], out, spark=spark)
    files, expected = contents(out / "migrated"), comparable(complete)
    out.rename(tmp_path / "complete")
    result = run_interrupted_at_each_step(sources[-1], out, spark=spark)
    assert comparable(result) == expected
    assert contents(out / "migrated") == files
    read = [
        sorted(
            pyarrow.dataset.dataset(place / "records", partitioning="hive").to_table().to_pylist(),
            key=lambda row: (row["topic"], row["partition"], row["offset"]),
        )
        for place in (out, tmp_path / "complete")
    ]
    assert read[0] == read[1] != []
    assert {path.name for path in tmp_path.iterdir()} == {"out", "complete"}
    assert {path.name for path in out.iterdir()} == {
        MARK, "migrated", "records", "report.html", "result.json",
    }


@pytest.mark.soak
def test_a_run_in_place_interrupted_at_each_step_has_the_same_result(spark, sources, tmp_path):
    logs = tmp_path / "kafka-logs"
    found = []
    for run in (run_pipeline, run_interrupted_at_each_step):
        shutil.copytree(sources[-1], logs)
        before = contents(logs)
        result = run(logs, tmp_path / "out", in_place=True, spark=spark)
        found.append((comparable(result), contents(logs)))
        undo(result.stores[0].undo_area)
        assert contents(logs) == before
        shutil.rmtree(logs)
        shutil.rmtree(result.stores[0].undo_area)
    assert found[0] == found[1]


@pytest.mark.soak
@pytest.mark.parametrize("difference", ["a file changes", "another option"])
def test_results_for_other_files_or_options_are_not_reused(
    spark, auto, sources, tmp_path, difference
):
    logs = shutil.copytree(sources[-1], tmp_path / sources[-1].name)
    options = {"progress": Interrupting("plan"), "spark": spark}
    if difference == "a file changes":
        (logs / "up-1").rename(tmp_path / "up-1")
    else:
        options["mode"] = "kip-33"
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(logs, tmp_path / "out", **options)
    if difference == "a file changes":
        (tmp_path / "up-1").rename(logs / "up-1")
    assert_same_as_in(run_pipeline(logs, tmp_path / "out", spark=spark, resume=True), auto[0])


def interrupted(plan, undo_dir, *, runner):
    """Apply a plan to one partition, and be interrupted."""

    def first(job, items, *, weigh):
        if job is not apply_partition:
            return runner(job, items, weigh=weigh)
        list(runner(job, items[:1], weigh=weigh))
        raise KeyboardInterrupt

    return apply(plan, undo_dir, runner=first)


@pytest.mark.soak
@pytest.mark.parametrize("meanwhile", ["nothing", "a run that does not resume", "other options"])
def test_an_interrupted_migration_in_place_is_finished_by_the_next(
    spark, sources, tmp_path, monkeypatch, meanwhile
):
    logs = shutil.copytree(sources[-1], tmp_path / "kafka-logs")
    before = contents(logs)
    with monkeypatch.context() as patched:
        patched.setattr("kafkastore.spark.pipeline.migrating.apply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(logs, tmp_path / "out", in_place=True, spark=spark)
    assert before != contents(logs)
    if "not resume" in meanwhile:  # it forgets what the first one had planned
        with change_refused("unfinished"):
            run_pipeline(logs, tmp_path / "out", in_place=True, spark=spark)
    options = {"mode": "kip-33"} if meanwhile == "other options" else {}
    result = run_pipeline(
        logs, tmp_path / "out", in_place=True, spark=spark, resume=True, **options
    )
    (each,) = result.stores
    assert each.files_made == each.segments
    assert (result.summary()[0].findings_before == 0) == (meanwhile != "nothing")
    assert result.summary()[0].findings_after == 0
    undo(each.undo_area)
    assert contents(logs) == before


def test_a_corrupt_partition_is_a_problem_and_the_others_complete(
    spark, sources, tmp_path
):
    logs = shutil.copytree(sources[-1], tmp_path / "kafka-logs")
    segments = sorted((logs / "up-0").glob("*.log"))
    segments[1].write_bytes(segments[1].read_bytes()[:-10] + bytes(10))
    result = run_pipeline(logs, tmp_path / "out", spark=spark)
    (each,) = result.stores
    (problem,) = each.problems
    assert (problem.whose, problem.error.type) == ("up-0", "ChecksumError")
    assert problem.error.path == f"up-0/{segments[1].name}"
    assert (each.summary().corrupt_partitions, each.summary().partitions_without_answers) == (1, 1)
    assert ("up", 0) not in each.before
    readable = {
        TopicPartition(row.place.topic, row.place.partition): row.records
        for row in each.partitions
        if row.records
    }
    assert each.rows_written == readable
    complete = kafkastore.open(sources[-1])
    assert 0 < readable["up", 0] < sum(1 for _ in complete["up", 0].records())
    assert readable["up", 1] == sum(1 for _ in complete["up", 1].records())
    assert "problem" in result.report.read_text()


def test_odd_timestamps_pass_through_all_steps(spark, tmp_path):
    stamps = [-1, 0, 5, 1_500_000_000_000, -3_000_000_000_000, 400_000_000_000_000, 2**63 - 1]
    rows = tuple(Row(at, stamp, None, b"v", ()) for at, stamp in enumerate(stamps))
    result = run_pipeline(
        Log((Segment(0, (Batch(rows=rows),)),)).write(tmp_path / "logs"),
        tmp_path / "out",
        spark=spark,
    )
    assert result.problems == []
    table = pyarrow.dataset.dataset(result.records, partitioning="hive").to_table()
    assert table["timestamp"].cast("int64").to_pylist() == [
        stamp * 1000 if stamp < 2**62 else None for stamp in stamps
    ]


def test_an_empty_store_completes(spark, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").write_text("version=0\nbroker.id=0\n")
    result = run_pipeline(tmp_path / "logs", tmp_path / "out", spark=spark)
    assert result.problems == []
    assert result.summary()[0].records == 0
    assert result.report.exists()


def test_wrong_places_are_refused_before_anything_is_done(spark, sources, tmp_path):
    with pytest.raises(NotALogDirectoryError):
        run_pipeline(tmp_path / "nowhere", tmp_path / "out", spark=spark)
    with change_refused("overlap"):
        run_pipeline([sources[0], sources[0]], tmp_path / "out", spark=spark)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with change_refused("not-empty"):
        run_pipeline(sources, tmp_path / "out", spark=spark)
    (tmp_path / "out" / ".kafkastore-pipeline").touch()
    with change_refused("not-empty"):
        run_pipeline(sources, tmp_path / "out", spark=spark)
    with change_refused("unsuitable-place"):
        run_pipeline(sources, tmp_path / "out" / "sub" / "other", spark=spark)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".kafkastore-pipeline", "mine"
    ]


@pytest.mark.soak
def test_files_added_to_an_output_during_a_rerun_are_not_lost(
    spark, sources, earlier, tmp_path, monkeypatch
):
    out = earlier

    def put(result):
        (out / "mine").write_text("a note")
        return render(result)

    monkeypatch.setattr("kafkastore.spark.pipeline.report.render", put)
    with change_refused("not-empty"):
        run_pipeline(sources[0], out, spark=spark)
    assert (out / "mine").read_text() == "a note"
    monkeypatch.undo()
    (out / "mine").rename(tmp_path / "mine")
    run_pipeline(sources[0], out, spark=spark, resume=True)
    assert [path.name for path in (out / "migrated").iterdir()] == [sources[0].name]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/disks/a/kafka-logs", "/disks/b/kafka-logs"], ["a-kafka-logs", "b-kafka-logs"]),
        (["/a/x/logs", "/b/x/logs", "/c"], ["a-x-logs", "b-x-logs", "c"]),
        (["/old logs", "/été"], ["old_logs", "t"]),
        (["/logs", "/a/logs"], ["logs-0", "a-logs"]),
        (["/"], ["store"]),
    ],
)
def test_stores_are_named_after_their_directories(paths, names):
    found = store_names([Path(path) for path in paths])
    assert len(set(found)) == len(found)
    assert found == names or len(paths) == 2
