"""Every way to read a log directory of one partition, each as one question with one answer.

`READERS` are functions of an `Asked`. What one returns can be compared with what it returned of the
same directory before; where it has something to say of damage it raises: a `KafkaStoreError`, or
`Reported` where the damage stands in its report or in its exit code.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet
from click.testing import CliRunner

import kafkastore
from kafkastore import legacy, migration
from kafkastore.checks.reindex import plan_reindex, reindex_partition
from kafkastore.cli.command_list import cli
from kafkastore.formats.topics.group_metadata import OffsetAndMetadata, OffsetCommitKey
from kafkastore.jobs.compare import AnswersJob, AskedPartition, CompareJob
from kafkastore.jobs.group_positions import position_items
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.latency import LatencyJob
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.store.partition_path import list_partition_paths, open_partition

#: So that answers by the clock are the same in every run.
NOW = 1_800_000_000_000


class Reported(Exception):
    """Damage that stands in a report; what it says."""


@dataclass(frozen=True)
class Asked:
    """A log directory of one partition, and what it is asked for: chosen while it was intact.

    Attributes
    ----------
    root : Path
        The log directory, or the partition directory by itself.
    times : tuple of int
        Rising.
    start, end : int
        Offsets in the middle; inclusive, exclusive.
    """

    root: Path
    times: tuple[int, ...]
    start: int
    end: int

    @property
    def log(self):
        """The partition, opened anew."""
        (log,) = self.store.partitions.values()
        return log

    @property
    def store(self):
        return kafkastore.open(self.root)

    @property
    def since(self):
        """A time that some records are before."""
        return self.times[len(self.times) // 3]

    @cached_property
    def directory(self):
        return self.log.path

    @property
    def place(self):
        (place,) = list_partition_paths("store", self.store)
        return place

    @property
    def commit(self):
        """A group that stands at `start`."""
        return OffsetCommitKey("group", self.log.topic, self.log.partition)


def asked_of(root):
    """Choose what an intact directory is asked for."""
    (log,) = kafkastore.open(root).partitions.values()
    records = list(log.records())
    stamps = sorted({record.timestamp for record in records if record.timestamp >= 0})
    chosen = {stamps[len(stamps) * part // 4] for part in range(4)} if stamps else set()
    times = {0, *chosen, *(stamp + 1 for stamp in stamps[-1:])}
    offsets = [record.offset for record in records]
    return Asked(
        root, tuple(sorted(times)), offsets[len(offsets) // 3], offsets[2 * len(offsets) // 3]
    )


# ---------------------------------------------------------------- records


def records(asked, **options):
    return [tuple(record) for record in asked.log.records(**options)]


def records_between(asked):
    return records(asked, start_offset=asked.start, end_offset=asked.end)


def frames(asked):
    """Where batches begin and how long they are, without a look at checksums."""
    return [(batch.position, batch.size) for batch in asked.log.batches()]


def verified_batches(asked):
    headers = []
    for batch in asked.log.batches():
        batch.verify()
        headers.append(batch.header.tobytes())
    return headers


def batches_between(asked):
    for batch in asked.log.batches(asked.start, asked.end):
        batch.verify()
        yield batch.header.tobytes()


def to_arrow(asked, **options):
    columns = ["key", "value", "offset", "timestamp", "timestampType", "leader_epoch"]
    return rows_of(asked.log.to_arrow(columns, **options).read_all())


def to_arrow_between(asked):
    return to_arrow(asked, start_offset=asked.start, end_offset=asked.end)


def to_arrow_by_time(asked):
    return to_arrow(asked, start_timestamp=asked.since, end_timestamp=asked.times[-1])


def rows_of(table):
    """A table's rows; timestamps as microseconds, which may be far beyond 9999."""
    columns = [
        column.cast("int64") if pyarrow.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


# ---------------------------------------------------------------- bounds, lookups by time


def bounds(asked):
    log = asked.log
    return log.log_start_offset, log.log_end_offset, log.last_stable_offset


def times_by(asked, rules, **options):
    return asked.log.offsets_for_timestamps(asked.times, rules, **options).tolist()


def offset_for_each_time(asked):
    return [asked.log.offset_for_timestamp(time) for time in asked.times]


def offsets_for_times(asked):
    store = asked.store
    (key,) = store.partitions
    return [store.offsets_for_times({key: time}) for time in asked.times]


def special_by(asked, rules):
    return [asked.log.list_offset(special, rules) for special in (-1, -2, -3)]


def offsets_before(asked):
    log = asked.log
    return [legacy.fetch_offsets_before(log, time, 9, now=NOW) for time in (-1, -2, *asked.times)]


# ---------------------------------------------------------------- KIP-33's use cases


def lag(asked, **options):
    return list(kafkastore.lag(asked.store, offsets={asked.commit: asked.start}, **options))


def latency(asked):
    return [_told(each) for each in kafkastore.latency(asked.store)]


def retention(asked):
    return [_told(each) for each in kafkastore.retention(asked.store, now=NOW)]


def sizing(asked):
    return _told(kafkastore.sizing(asked.store))


def _told(value):
    """A value that can be compared: numpy's arrays are no truth values."""
    return repr(value)


# ---------------------------------------------------------------- plans, reports


def migrate(asked):
    found = migration.survey(asked.root)
    for path, segment in found.segments_by_path:
        if segment.scan is not None and segment.scan.problem is not None:
            raise Reported(f"{path}: {segment.scan.problem}")
    plan = migration.plan(found)
    answers = migration.answers(found, plan, samples=3)
    for each in answers.partitions:
        if each.problem is not None:
            raise Reported(each.problem)
    return plan.changes, answers


def convert(asked):
    plan = kafkastore.migration.convert.plan_convert(asked.root)
    if plan.unconverted:
        raise Reported(plan.unconverted[0].path)
    return plan.changes


def reindex(asked):
    plan = plan_reindex(asked.root)
    if plan.unindexed:
        raise Reported(plan.unindexed[0].path)
    return plan.changes


# ---------------------------------------------------------------- Spark, without a JVM


def source(asked, **options):
    """What tasks of the data source give, through the pickle that goes to them."""
    made = KafkaStoreDataSource({"path": str(asked.root), **options})
    reader = pickle.loads(pickle.dumps(made.reader(schema=made.schema())))
    return [
        row for part in reader.partitions() for batch in reader.read(part)
        for row in rows_of(batch)
    ]


def source_of_batches(asked):
    """The table of batches, whose last column says whether the checksum is right."""
    rows = source(asked, table="batches")
    wrong = [row for row in rows if not row[-1]]
    if wrong:
        raise Reported(f"{asked.directory.name}: {wrong}")
    return rows


def source_by_time(asked):
    return source(
        asked,
        startingTimestamp=str(asked.since),
        startingOffsetsByTimestampStrategy="latest",
    )


def surveyed(asked):
    row = InventoryJob().run((asked.place,))
    if row.error is not None:
        raise Reported(row.error)
    return row


def answered(asked):
    found = AnswersJob(NOW).run(AskedPartition(asked.place, asked.times))
    if found.error is not None:
        raise Reported(found.error)
    return found


def compared(asked):
    return CompareJob(asked.times, samples=5, now=NOW).run((asked.place,)).compared.tolist()


def surveyed_place(asked):
    found = migration.survey_partition(open_partition(asked.place))
    for segment in found.segments:
        if segment.scan is not None and segment.scan.problem is not None:
            raise Reported(f"{found.path(segment)}: {segment.scan.problem}")
    return found


def reindexed_place(asked):
    found = reindex_partition(open_partition(asked.place), "2.4")
    if found.unindexed:
        raise Reported(found.unindexed[0].path)
    return found


def measured_lag(asked):
    committed = {asked.commit: OffsetAndMetadata(asked.start, "", -1)}
    (item,) = position_items(committed, asked.store)
    return LagJob().run(item)


def measured_latency(asked):
    (item,) = LatencyJob.items(asked.store, [asked.log.topic_partition])
    return _told(LatencyJob().run(item))


# ---------------------------------------------------------------- command line, in this process


def run(asked, *arguments, code=0):
    """What a command prints; where its exit code says that something is wrong, that is raised."""
    result = CliRunner().invoke(
        cli, list(map(str, arguments)), prog_name="kafkastore", catch_exceptions=False
    )
    if result.exit_code != code:
        said = result.stderr + result.stdout
        if asked.directory.name not in said:
            raise AssertionError(f"exit code {result.exit_code} without a word of it: {said!r}")
        raise Reported(said)
    return result.stdout


def command(name, *options):
    return lambda asked: run(asked, name, asked.root, *options)


def cat_by_time(asked):
    return run(asked, "cat", asked.root, "--from", asked.since, "--until", asked.times[-1])


def cat_to_parquet(asked):
    with TemporaryDirectory() as folder:
        out = Path(folder) / "o.parquet"
        run(asked, "cat", asked.root, "--format", "parquet", "-o", out)
        return rows_of(pyarrow.parquet.read_table(out))


def offsets_command(asked, rules):
    times = [word for time in asked.times for word in ("--at", time)]
    return run(
        asked, "offsets", asked.root, *times, "--at", "latest", "--rules", rules, "--json"
    )


def lag_command(asked):
    log = asked.log
    at = f"group:{log.topic}:{log.partition}:{asked.start}"
    return run(asked, "lag", asked.root, "--offsets", at, "--json")


def compare_command(asked):
    times = [word for time in asked.times for word in ("--at", time)]
    return run(asked, "compare", asked.root, *times, "--json")


def dump_command(asked):
    """Each log by itself: what a batch has, as it is."""
    return [run(asked, "dump", path, "--json") for path in sorted(asked.directory.glob("*.log"))]


def copied_and_converted(asked):
    with TemporaryDirectory() as folder:
        target = Path(folder) / "copy"
        run(asked, "convert", asked.root, "--copy-to", target)
        (log,) = kafkastore.open(target).partitions.values()
        return [tuple(record)[:6] for record in log.records()]


#: By name. Python's, the plans', Spark's, the command line's.
READERS = {
    "records": records,
    "records committed": partial(records, isolation="read_committed"),
    "records between": records_between,
    "batches": frames,
    "batches verified": verified_batches,
    "batches between": lambda asked: list(batches_between(asked)),
    "to_arrow": to_arrow,
    "to_arrow committed": partial(to_arrow, isolation="read_committed"),
    "to_arrow between": to_arrow_between,
    "to_arrow by time": to_arrow_by_time,
    "bounds": bounds,
    "log end": lambda asked: asked.log.log_end_offset,
    "times correct": partial(times_by, rules="correct"),
    "times correct, each": offset_for_each_time,
    "times correct, committed": partial(
        times_by, rules="correct", isolation="read_committed"
    ),
    "times correct, untimed": partial(times_by, rules="correct", untimed="segment"),
    "times without time indexes": partial(times_by, rules="correct", indexes="ignore"),
    "times by trusted indexes": partial(times_by, rules="correct", indexes="trust"),
    "offsets_for_times": offsets_for_times,
    "latest correct": lambda asked: asked.log.list_offset(-1),
    "special correct": partial(special_by, rules="correct"),
    "times 0.10.1": partial(times_by, rules="0.10.1"),
    "times 2.4": partial(times_by, rules="2.4"),
    "times 4.1": partial(times_by, rules="4.1"),
    "times kip-33": partial(times_by, rules="kip-33"),
    "special 2.4": partial(special_by, rules="2.4"),
    "special 4.1": partial(special_by, rules="4.1"),
    "legacy": offsets_before,
    "lag": lag,
    "lag committed": partial(lag, isolation="read_committed"),
    "latency": latency,
    "retention": retention,
    "sizing": sizing,
    "migrate": migrate,
    "convert": convert,
    "reindex": reindex,
    "spark source": source,
    "spark source committed": partial(source, isolation="read_committed"),
    "spark source by time": source_by_time,
    "spark batches": source_of_batches,
    "spark segments": partial(source, table="segments"),
    "job survey": surveyed,
    "job answers": answered,
    "job compare": compared,
    "job migrate": surveyed_place,
    "job reindex": reindexed_place,
    "job lag": measured_lag,
    "job latency": measured_latency,
    "cat": command("cat"),
    "cat json": command("cat", "--json"),
    "cat by time": cat_by_time,
    "cat committed": command("cat", "--isolation", "read_committed"),
    "cat parquet": cat_to_parquet,
    "ls": command("ls", "--json"),
    "ls segments": command("ls", "--segments", "--json"),
    "dump": dump_command,
    "offsets correct": partial(offsets_command, rules="correct"),
    "offsets 2.4": partial(offsets_command, rules="2.4"),
    "offsets legacy": partial(offsets_command, rules="legacy"),
    "lag command": lag_command,
    "latency command": command("latency", "--json"),
    "compare": compare_command,
    "convert command": copied_and_converted,
}
