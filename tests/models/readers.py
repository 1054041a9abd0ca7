"""Every way to read a log directory of one partition, each as one question with one answer.

`READERS` are functions of a `Subject`. The result of one can be compared with its earlier result
for the same directory. A reader that finds damage raises: a `KafkaStoreError`, or `Reported` if the
damage is in its report or in its exit code.
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
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
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
    """Damage that is in a report, with the report's text."""


@dataclass(frozen=True)
class Subject:
    """A log directory of one partition, and what readers look up in it, chosen while it was intact.

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
        """The partition, opened again."""
        (log,) = self.store.partitions.values()
        return log

    @property
    def store(self):
        return kafkastore.open(self.root)

    @property
    def since(self):
        """A time later than some records."""
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
        """A group whose committed offset is `start`."""
        return OffsetCommitKey("group", self.log.topic, self.log.partition)


def subject_of(root):
    """Choose what to look up in an intact directory."""
    (log,) = kafkastore.open(root).partitions.values()
    records = list(log.records())
    stamps = sorted({record.timestamp for record in records if record.timestamp >= 0})
    chosen = {stamps[len(stamps) * part // 4] for part in range(4)} if stamps else set()
    times = {0, *chosen, *(stamp + 1 for stamp in stamps[-1:])}
    offsets = [record.offset for record in records]
    return Subject(
        root, tuple(sorted(times)), offsets[len(offsets) // 3], offsets[2 * len(offsets) // 3]
    )


# ---------------------------------------------------------------- records


def records(subject, **options):
    return [tuple(record) for record in subject.log.records(**options)]


def records_between(subject):
    return records(subject, start_offset=subject.start, end_offset=subject.end)


def frames(subject):
    """Positions and sizes of batches; checksums are not verified."""
    return [(batch.position, batch.size) for batch in subject.log.batches()]


def verified_batches(subject):
    headers = []
    for batch in subject.log.batches():
        batch.verify()
        headers.append(batch.header.tobytes())
    return headers


def batches_between(subject):
    for batch in subject.log.batches(subject.start, subject.end):
        batch.verify()
        yield batch.header.tobytes()


def to_arrow(subject, **options):
    columns = ["key", "value", "offset", "timestamp", "timestampType", "leader_epoch"]
    return rows_of(subject.log.to_arrow(columns, **options).read_all())


def to_arrow_between(subject):
    return to_arrow(subject, start_offset=subject.start, end_offset=subject.end)


def to_arrow_by_time(subject):
    return to_arrow(subject, start_timestamp=subject.since, end_timestamp=subject.times[-1])


def rows_of(table):
    """A table's rows; timestamps as microseconds, which may be far beyond 9999."""
    columns = [
        column.cast("int64") if pyarrow.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


# ---------------------------------------------------------------- bounds, lookups by time


def bounds(subject):
    log = subject.log
    return log.log_start_offset, log.log_end_offset, log.last_stable_offset


def times_by(subject, rules, **options):
    return subject.log.offsets_for_timestamps(subject.times, rules, **options).tolist()


def offset_for_each_time(subject):
    return [subject.log.offset_for_timestamp(time) for time in subject.times]


def offsets_for_times(subject):
    store = subject.store
    (key,) = store.partitions
    return [store.offsets_for_times({key: time}) for time in subject.times]


def special_by(subject, rules):
    return [subject.log.list_offset(special, rules) for special in (-1, -2, -3)]


def offsets_before(subject):
    log = subject.log
    return [legacy.fetch_offsets_before(log, time, 9, now=NOW) for time in (-1, -2, *subject.times)]


# ---------------------------------------------------------------- KIP-33's use cases


def lag(subject, **options):
    return list(kafkastore.lag(subject.store, offsets={subject.commit: subject.start}, **options))


def latency(subject):
    return [_plain(each) for each in kafkastore.latency(subject.store)]


def retention(subject):
    return [_plain(each) for each in kafkastore.retention(subject.store, now=NOW)]


def sizing(subject):
    return _plain(kafkastore.sizing(subject.store))


def _plain(value):
    """A comparable value: comparing numpy arrays gives no single bool."""
    return repr(value)


# ---------------------------------------------------------------- plans, reports


def migrate(subject):
    found = migration.survey(subject.root)
    for path, segment in found.segments_by_path:
        if segment.scan is not None and segment.scan.problem is not None:
            raise Reported(f"{path}: {segment.scan.problem}")
    plan = migration.plan(found)
    answers = migration.answers(found, plan, samples=3)
    for each in answers.partitions:
        if each.problem is not None:
            raise Reported(each.problem)
    return plan.changes, answers


def convert(subject):
    plan = kafkastore.migration.convert.plan_convert(subject.root)
    if plan.unconverted:
        raise Reported(plan.unconverted[0].path)
    return plan.changes


def reindex(subject):
    plan = plan_reindex(subject.root)
    if plan.unindexed:
        raise Reported(plan.unindexed[0].path)
    return plan.changes


# ---------------------------------------------------------------- Spark, without a JVM


def source(subject, **options):
    """The rows of the data source's tasks, which are pickled first."""
    made = KafkaStoreDataSource({"path": str(subject.root), **options})
    reader = pickle.loads(pickle.dumps(made.reader(schema=made.schema())))
    return [
        row for part in reader.partitions() for batch in reader.read(part)
        for row in rows_of(batch)
    ]


def source_of_batches(subject):
    """The table of batches, whose last column says whether the checksum is right."""
    rows = source(subject, table="batches")
    wrong = [row for row in rows if not row[-1]]
    if wrong:
        raise Reported(f"{subject.directory.name}: {wrong}")
    return rows


def source_by_time(subject):
    return source(
        subject,
        startingTimestamp=str(subject.since),
        startingOffsetsByTimestampStrategy="latest",
    )


def surveyed(subject):
    row = InventoryJob().run((subject.place,))
    if row.error is not None:
        raise Reported(row.error)
    return row


def answered(subject):
    found = AnswersJob(NOW).run(AskedPartition(subject.place, subject.times))
    if found.error is not None:
        raise Reported(found.error)
    return found


def compared(subject):
    return CompareJob(subject.times, samples=5, now=NOW).run((subject.place,)).compared.tolist()


def surveyed_place(subject):
    found = migration.survey_partition(open_partition(subject.place))
    for segment in found.segments:
        if segment.scan is not None and segment.scan.problem is not None:
            raise Reported(f"{found.path(segment)}: {segment.scan.problem}")
    return found


def reindexed_place(subject):
    found = reindex_partition(open_partition(subject.place), "2.4")
    if found.unindexed:
        raise Reported(found.unindexed[0].path)
    return found


def measured_lag(subject):
    committed = {subject.commit: OffsetAndMetadata(subject.start, "", -1)}
    (item,) = position_items(committed, subject.store)
    return LagJob().run(item)


def measured_latency(subject):
    (item,) = LatencyJob.items(subject.store, [subject.log.topic_partition])
    return _plain(LatencyJob().run(item))


# ---------------------------------------------------------------- command line, in this process


def run(subject, *arguments, code=0):
    """The output of a command; an exit code that reports problems is raised."""
    result = CliRunner().invoke(
        cli, list(map(str, arguments)), prog_name="kafkastore", catch_exceptions=False
    )
    if result.exit_code != code:
        said = result.stderr + result.stdout
        if subject.directory.name not in said:
            raise AssertionError(f"exit code {result.exit_code} without a word of it: {said!r}")
        raise Reported(said)
    return result.stdout


def command(name, *options):
    return lambda subject: run(subject, name, subject.root, *options)


def cat_by_time(subject):
    return run(subject, "cat", subject.root, "--from", subject.since, "--until", subject.times[-1])


def cat_to_parquet(subject):
    with TemporaryDirectory() as folder:
        out = Path(folder) / "o.parquet"
        run(subject, "cat", subject.root, "--format", "parquet", "-o", out)
        return rows_of(pyarrow.parquet.read_table(out))


def offsets_command(subject, rules):
    times = [word for time in subject.times for word in ("--at", time)]
    return run(
        subject, "offsets", subject.root, *times, "--at", "latest", "--rules", rules, "--json"
    )


def lag_command(subject):
    log = subject.log
    at = f"group:{log.topic}:{log.partition}:{subject.start}"
    return run(subject, "lag", subject.root, "--offsets", at, "--json")


def compare_command(subject):
    times = [word for time in subject.times for word in ("--at", time)]
    return run(subject, "compare", subject.root, *times, "--json")


def dump_command(subject):
    """Each log on its own: the fields of each batch, unchecked."""
    paths = sorted(subject.directory.glob("*.log"))
    return [run(subject, "dump", path, "--json") for path in paths]


def copied_and_converted(subject):
    with TemporaryDirectory() as folder:
        target = Path(folder) / "copy"
        run(subject, "convert", subject.root, "--copy-to", target)
        (log,) = kafkastore.open(target).partitions.values()
        return [tuple(record)[:6] for record in log.records()]


#: By name. Python's, the plans', Spark's, the command line's.
READERS = {
    "records": records,
    "records committed": partial(records, isolation="read_committed"),
    "records between": records_between,
    "batches": frames,
    "batches verified": verified_batches,
    "batches between": lambda subject: list(batches_between(subject)),
    "to_arrow": to_arrow,
    "to_arrow committed": partial(to_arrow, isolation="read_committed"),
    "to_arrow between": to_arrow_between,
    "to_arrow by time": to_arrow_by_time,
    "bounds": bounds,
    "log end": lambda subject: subject.log.log_end_offset,
    "times correct": partial(times_by, rules="correct"),
    "times correct, each": offset_for_each_time,
    "times correct, committed": partial(
        times_by, rules="correct", isolation="read_committed"
    ),
    "times correct, untimed": partial(times_by, rules="correct", untimed="segment"),
    "times without time indexes": partial(times_by, rules="correct", indexes="ignore"),
    "times by trusted indexes": partial(times_by, rules="correct", indexes="trust"),
    "offsets_for_times": offsets_for_times,
    "latest correct": lambda subject: subject.log.list_offset(-1),
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
