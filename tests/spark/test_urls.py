"""The data source and the jobs on stores behind URLs: the rows of directories, and few requests."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pytest
from click.testing import CliRunner
from models.refused import change_refused
from models.seed import some
from pyspark.sql.functions import lit
from remote import s3_server
from remote.conftest import forget_connections
from remote.counting_proxy import CountingProxy, counting
from spark.frames import rows_of
from spark.raised import raised_in_python
from use_cases.stores import T0, commit, record, written

from kafkastore import LogDirWriter
from kafkastore.cli.command_list import cli
from kafkastore.remote.sparse_files import BLOCK_BYTES, WHOLE_BLOCKS
from kafkastore.spark import jobs, register
from kafkastore.spark.pipeline import run_pipeline

START = 1_500_000_000_000
SEGMENTS, BATCHES, RECORD_BYTES = 50, 40, 16_000


@dataclass(frozen=True)
class Cloud:
    """A store in S3, and a session whose workers find it.

    Attributes
    ----------
    spark : SparkSession
    proxy : CountingProxy
        What it and the session are apart by.
    root : path
        What the server serves.
    """

    spark: object
    proxy: CountingProxy
    root: Path

    def put(self, directory: Path, name: str) -> str:
        """Put a directory into the store, with the store's resolution of times, seconds."""
        import s3fs

        s3fs.S3FileSystem(use_listings_cache=False).put(
            f"{directory}/", f"kafka/{name}/", recursive=True
        )
        for path in directory.rglob("*"):
            if path.is_file():
                seconds = path.stat().st_mtime_ns // 10**9 * 10**9
                for each in (path, self.root / "kafka" / name / path.relative_to(directory)):
                    os.utime(each, ns=(seconds, seconds))
        self.proxy.requests.clear()
        return f"s3://kafka/{name}"

    def load(self, *paths: object, **options: str):
        """A frame of a store, or of a directory."""
        return self.spark.read.format("kafkastore").options(**options).load([*map(str, paths)])

    def fetched(self) -> Counter[str]:
        """The bytes received of each object, by its name."""
        sizes: Counter[str] = Counter()
        for each in self.proxy.gets:
            sizes[each.path.rpartition("/")[2]] += each.bytes
        return sizes


@pytest.fixture(scope="module")
def cloud(spark, tmp_path_factory):
    """A store in S3 with a bucket, known to this process and to the workers of a session."""
    if not s3_server.PROGRAM.exists():
        pytest.skip(f"{s3_server.PROGRAM} is not there; python -m remote.s3_server builds it")
    root = tmp_path_factory.mktemp("s3") / "served"
    (root / "kafka").mkdir(parents=True)
    workers = spark.sparkContext.environment  # as spark.executorEnv.* sets it at the start
    with (
        s3_server.serving(root) as port,
        counting(port) as proxy,
        pytest.MonkeyPatch.context() as here,
    ):
        settings = {
            "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_ENDPOINT_URL": proxy.url,
        }
        for name, value in settings.items():
            here.setenv(name, value)
            here.setitem(workers, name, value)
        forget_connections()
        session = spark.newSession()
        register(session)
        yield Cloud(session, proxy, root)
        forget_connections()


@pytest.fixture(scope="module")
def golden_stores(cloud, golden, tmp_path_factory):
    """Directories of two brokers, and the URLs of the same."""
    here, there = [], []
    for version, name in (("0.8.2.2", "codecs"), ("2.4.0", "transactions")):
        directory = tmp_path_factory.mktemp("golden") / "logs"
        copytree(golden(version, name, "answers").logs, directory)
        there.append(cloud.put(directory, f"{version}-{name}"))
        here.append(directory)
    return here, there


@pytest.fixture(scope="module")
def minutes(cloud, tmp_path_factory):
    """One partition of 50 segments, each with 40 batches of 16 KB, one a second; a function of a
    name that puts it into the store."""
    root = tmp_path_factory.mktemp("minutes") / "logs"
    config = {"segment.bytes": BATCHES * (RECORD_BYTES + 100), "retention.ms": -1}
    with LogDirWriter(root, clock=lambda: START) as log_dir:
        writer = log_dir.writer("orders", 0, config)
        for number in range(SEGMENTS * BATCHES):
            writer.append_columns(
                pa.table({"value": [bytes(RECORD_BYTES)], "timestamp": [START + number * 1000]})
            )
    return lambda name: cloud.put(root, name)


# ---------------------------------------------------------------- the data source


@pytest.mark.parametrize(
    "options",
    [
        {"includeHeaders": "true", "isolation": "read_committed"},
        {"startingTimestamp": "1500000003000", "startingOffsetsByTimestampStrategy": "latest"},
        {"assign": '{"txn": [0]}', "startingOffsets": '{"txn": {"0": 5}}',
         "endingOffsets": '{"txn": {"0": 17}}'},
    ],
)
def test_rows_of_a_url_are_those_of_the_directory(cloud, golden_stores, options):
    here, there = golden_stores
    rows = rows_of(cloud.load(*there, **options).toArrow())
    assert rows == rows_of(cloud.load(*here, **options).toArrow())
    assert rows


@pytest.mark.parametrize("table", ["batches", "segments", "time_index", "transactions"])
def test_tables_of_a_url_are_those_of_the_directory(cloud, golden_stores, table):
    (_, here), (_, there) = golden_stores
    rows = [
        [row.asDict() for row in cloud.load(path, table=table).collect()] for path in (there, here)
    ]
    for row in rows[1]:
        if "path" in row:
            row["path"] = row["path"].replace(str(here), there)
    assert rows[0] == rows[1]
    assert rows[0]


def test_a_range_of_times_fetches_indexes_and_the_batches_in_it(cloud, minutes):
    frame = cloud.load(
        minutes("times"),
        columns="offset,timestamp",
        startingTimestamp=str(START + 777_500),
        endingTimestamp=str(START + 837_500),
    )
    assert [row.offset for row in frame.collect()] == [*range(778, 838)]
    logs = {name: size for name, size in cloud.fetched().items() if name.endswith(".log")}
    # Segments with the minute, those read past their indexes, and the last for its end.
    assert len(logs) <= 838 // BATCHES + 3
    wanted = 60 * RECORD_BYTES
    assert sum(logs.values()) <= 3 * wanted + len(logs) * 4 * BLOCK_BYTES
    assert len(cloud.proxy.requests) <= 10 * (838 // BATCHES + 3)


def test_a_filter_on_times_fetches_nothing_before_them(cloud, minutes):
    since = datetime.fromtimestamp((START + 1_900_000) / 1000, UTC)
    frame = cloud.load(
        minutes("filtered"),
        columns="offset,timestamp",
        pushFilters="true",
        indexes="trust",
        startingOffsets='{"orders": {"0": 1600}}',
    )
    assert frame.where(frame.timestamp >= lit(since)).count() == 100
    logs = {name: size for name, size in cloud.fetched().items() if name.endswith(".log")}
    assert sum(logs.values()) <= 3 * 100 * RECORD_BYTES + len(logs) * WHOLE_BLOCKS * BLOCK_BYTES
    assert len(logs) <= 400 // BATCHES + 1


@pytest.mark.soak
def test_a_stream_reads_existing_records_and_then_new_ones(cloud, tmp_path):
    def append(directory: Path, first: int, count: int) -> None:
        config = {"segment.bytes": 1000, "retention.ms": -1}
        with LogDirWriter(directory, clock=lambda: START) as log_dir:
            writer = log_dir.writer("orders", 0, config)
            for number in range(first, first + count):
                writer.append_columns(
                    pa.table({"value": [b"%d" % number], "timestamp": [START + number]})
                )

    def run() -> list[int]:
        seen: list[int] = []
        query = (
            cloud.spark.readStream.format("kafkastore")
            .option("startingOffsets", "earliest")
            .load(url)
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda batch, _: seen.extend(row.offset for row in batch.collect()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(seen)

    append(tmp_path / "logs", 0, 30)
    url = cloud.put(tmp_path / "logs", "stream")
    assert run() == [*range(30)]
    append(tmp_path / "logs", 30, 20)
    cloud.put(tmp_path / "logs", "stream")
    assert run() == [*range(30, 50)]


def test_errors_name_urls_and_no_temporary_files(cloud, golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "codecs", "answers").logs)
    log = max(logs.glob("*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    url = cloud.put(logs, "broken")
    name = f"{url}/{log.relative_to(logs)}"
    for frame, error, place in (
        (lambda: cloud.load(url), "ChecksumError", name),
        (lambda: cloud.load(url, startingOffsets="{}"), "OptionError", ""),
        (lambda: cloud.load(f"{url}/none"), "NotALogDirectoryError", f"{url}/none"),
        (lambda: cloud.load(url, logs), "DuplicatePartitionError", f"{url}/"),
    ):
        with raised_in_python(error) as raised:
            frame().toArrow()
        assert place in str(raised.value)
        assert "kafkastore-remote" not in str(raised.value)


READING = """
import json, sys
from kafkastore.spark import register, session

url, settings = sys.argv[1], json.loads(sys.argv[2])
spark = session("local[1]", **{f"spark.executorEnv.{name}": settings[name] for name in settings})
register(spark)
print(spark.read.format("kafkastore").load(url).count())
"""


@pytest.mark.soak
@pytest.mark.parametrize("way", some(["environment", "executorEnv"], 1, "credentials"))
def test_a_new_session_has_credentials_by_its_environment_or_by_options(
    cloud, golden_stores, way
):
    (here, *_), (url, *_) = golden_stores
    settings = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    others = {name: value for name, value in os.environ.items() if name not in settings}
    by_options = way == "executorEnv"
    ran = subprocess.run(
        [sys.executable, "-c", READING, url, json.dumps(settings if by_options else {})],
        env=others if by_options else os.environ,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == [str(cloud.load(here).count())], ran.stderr


# ---------------------------------------------------------------- jobs


@pytest.fixture(scope="module")
def committed(cloud, tmp_path_factory):
    """A directory of records, commits and a broken batch, and its URL."""
    directory = tmp_path_factory.mktemp("committed") / "logs"
    clock = {"now": T0}
    with written(directory, clock=lambda: clock["now"]) as partition:
        for step in range(0, 40, 10):
            clock["now"] = T0 + step + 5
            for number in range(2):
                partition("orders", number).add(record(T0 + step, b"m%d" % step))
        partition("__consumer_offsets").add(commit("billing", "orders", 0, 2))
    log = directory / "orders-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"~")
    return directory, cloud.put(directory, "committed")


@pytest.mark.parametrize(
    ("job", "options"),
    [
        (jobs.inventory, {}),
        (jobs.verify, {}),
        (jobs.predict_start, {}),
        (jobs.compare, {"samples": 3}),
        (jobs.lag, {}),
        (jobs.latency, {}),
    ],
)
def test_tables_of_jobs_on_a_url_are_those_of_the_directory(cloud, committed, job, options):
    here, there = committed
    local, remote = job(cloud.spark, here, **options), job(cloud.spark, there, **options)
    both = local.select(lit(False).alias("is_remote"), "*").unionByName(
        remote.select(lit(True).alias("is_remote"), "*")
    )
    rows = {False: [], True: []}
    for row in both.collect():
        values = row.asDict(recursive=True)
        assert values["path"].startswith(there if values["is_remote"] else str(here))
        rows[values.pop("is_remote")].append(
            repr(sorted(values.items())).replace(str(here), there)
        )
    assert sorted(rows[True]) == sorted(rows[False])
    assert rows[True]


@pytest.mark.soak
def test_records_of_a_url_become_parquet(cloud, committed, tmp_path):
    _, there = committed
    result = jobs.records_to_parquet(cloud.spark, there, tmp_path / "out")
    counts = {(row.topic, row.partition): (row.rows, row.path) for row in result.collect()}
    assert counts["orders", 0] == (4, f"{there}/orders-0")
    assert counts["orders", 1][0] == 3
    written_rows = cloud.spark.read.parquet(str(tmp_path / "out"))
    assert written_rows.where("topic = 'orders' and partition = 0").count() == 4


@pytest.mark.soak
def test_commands_on_spark_print_of_a_url_what_they_print_without(
    cloud, golden, writable_copy, tmp_path
):
    logs = writable_copy(golden("0.8.2.2", "codecs", "answers").logs)
    url = cloud.put(logs, "old")

    def run(*arguments):
        ran = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
        return ran.exit_code, ran.stdout.replace(str(tmp_path / "spark"), str(tmp_path / "here"))

    assert run("verify", url, "--spark", "local[2]") == run("verify", url)
    assert run("migrate", url, "--dry-run", "--spark", "local[2]") == run(
        "migrate", url, "--dry-run"
    )
    bucket = cloud.root / "kafka"
    before = {path: path.read_bytes() for path in bucket.rglob("*") if path.is_file()}
    code, said = run("migrate", url, "--copy-to", tmp_path / "spark", "--spark", "local[2]")
    assert code == 0, said
    assert f"of {url} to" in said
    run("migrate", logs, "--copy-to", tmp_path / "here")
    made = {
        name: {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file() and path.name != ".lock"
        }
        for name in ("spark", "here")
    }
    assert made["spark"] == made["here"]
    for source, name in [(logs, "copy-1"), (url, "copy-2")]:
        copy = f"{url.rpartition('/')[0]}/{name}"
        code, said = run("migrate", source, "--copy-to", copy, "--spark", "local[2]")
        assert code == 0, said
        place = bucket / name
        files = [path for path in place.rglob("*") if path.is_file()]
        assert made["here"] == {path.relative_to(place): path.read_bytes() for path in files}
        rmtree(place)
    assert before == {path: path.read_bytes() for path in bucket.rglob("*") if path.is_file()}


@pytest.mark.soak
def test_the_pipeline_completes_from_a_url(cloud, golden, writable_copy, tmp_path):
    logs = writable_copy(golden("0.8.2.2", "codecs", "answers").logs)
    url = cloud.put(logs, "backup")
    here = run_pipeline([logs], tmp_path / "here", spark=cloud.spark)
    there = run_pipeline([url], tmp_path / "there", spark=cloud.spark)

    def comparable(result, of):
        (row,) = result.summary()
        text = (result.out / "result.json").read_text().replace(str(of), ".")
        (store,) = json.loads(text.replace(str(result.out), "out"))["stores"]
        return row._replace(store=""), {**store, "name": "", "migrated": "", "summary": ""}

    assert comparable(there, url) == comparable(here, logs)
    assert url in there.report.read_text()
    for path in (there.report, there.out / "result.json"):
        assert "kafkastore-remote" not in path.read_text()


@pytest.mark.parametrize("job", [jobs.migrate, jobs.reindex])
def test_jobs_that_change_directories_refuse_urls(cloud, committed, job):
    with change_refused("unsupported", committed[1]):
        job(cloud.spark, committed[1])
