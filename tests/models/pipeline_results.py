"""Results of pipeline runs without Spark: of a directory, and of a store too large to write."""
from __future__ import annotations

import random
from pathlib import Path

import kafkastore
from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.checks.verify import verify_log
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.compare import AnswerRow, AnswersJob, AskedPartition
from kafkastore.jobs.inventory import InventoryJob, PartitionInventory, SegmentInventory
from kafkastore.spark.pipeline.results import PipelineResult, Step, StoreResult
from kafkastore.store.partition_path import PartitionPath, list_partition_paths, open_partition

NOW = 1_600_000_000_000
#: One of each severity.
KINDS = (
    FindingKind.TIME_INDEX_LEFT_BY_CRASH, FindingKind.MISSING_OFFSET_INDEX,
    FindingKind.TIME_INDEX_MISMATCH, FindingKind.ZERO_TIME_INDEX_ENTRIES,
)


def result_with(*stores: StoreResult) -> PipelineResult:
    """Put stores into a run."""
    return PipelineResult(Path("/out"), "auto", NOW, list(stores), [Step("survey", 1.5, "done")])


def store_of(root: Path, name: str = "store") -> StoreResult:
    """The results of a run for a directory in which the migration changed nothing."""
    store = StoreResult(name, str(root), str(root))
    for place in list_partition_paths(name, kafkastore.open(root)):
        row = InventoryJob(5).run((place,))
        store.partitions.append(row)
        if row.error is None:
            key = TopicPartition(place.topic, place.partition)
            store.before[key] = AnswersJob(NOW).run(AskedPartition(place, row.times)).rows
            store.after[key] = store.before[key]
        store.findings_before += verify_log(open_partition(place))
    store.findings_after = store.findings_before
    return store


def made_up_store(partitions: int, segments: int, times: int, name: str = "large") -> StoreResult:
    """A store that is not on disk, always with the same numbers, long names and many problems."""
    chance = random.Random(5)
    store = StoreResult(name, f"/data/{name}", f"/out/migrated/{name}")
    for number in range(partitions):
        topic = f"topic-{number % 70}" + "-of-some-length" * (number % 7)
        row = _made_up_partition(chance, name, topic, number, segments)
        store.partitions.append(row)
        key = TopicPartition(topic, number)
        store.before[key] = tuple(_answer(chance, row, at, is_right=False) for at in range(times))
        store.after[key] = tuple(_answer(chance, row, at, is_right=True) for at in range(times))
        store.problems.append(f"{topic}-{number} could not be read to its end")
        store.warnings.append(f"{topic}-{number} has no checkpoint")
        for at, segment in enumerate(row.segments):
            store.findings_before.append(
                Finding(
                    KINDS[at % len(KINDS)],
                    Path(row.place.path, f"{segment.base_offset:020}.timeindex"),
                    at,
                    f"entry {at} of {number} has the timestamp of {'abcdefghij'[number % 10]}",
                    "kafkastore reindex",
                )
            )
    return store


def _made_up_partition(
    chance: random.Random, name: str, topic: str, number: int, segments: int
) -> PartitionInventory:
    rows, samples = [], []
    offset, stamp = 0, 1_500_000_000_000 + chance.randrange(10**9)
    for _ in range(segments):
        records, span = chance.randrange(500, 2000), chance.randrange(10**6, 10**8)
        size = records * chance.randrange(100, 1000)
        samples += [(stamp + span * at // 9, offset + records * at // 9) for at in range(9)]
        last = stamp + span
        rows.append(
            SegmentInventory(
                offset,
                size,
                last + chance.randrange(10**7),
                last,
                records,
                size // chance.randrange(4097, 20_000),
                None if chance.random() < 0.3 else size // chance.randrange(4097, 20_000),
            )
        )
        offset, stamp = offset + records, last
    path, total = f"/data/{name}/{topic}-{number}", sum(row.size for row in rows)
    place = PartitionPath(name, f"/data/{name}", path, topic, number, total)
    return PartitionInventory(place, tuple(rows), 0, offset, offset, None, tuple(samples), None)


def _answer(
    chance: random.Random, row: PartitionInventory, at: int, *, is_right: bool
) -> AnswerRow:
    correct = chance.randrange(1000, row.log_end_offset)
    legacy = correct - chance.choice([0, 10, 900, -5])
    off = 0 if is_right else chance.choice([0, 0, 40])
    stamp = row.samples[at % len(row.samples)][0] + at
    broker = None if off else correct
    redelivered, missed = max(correct - legacy, 0), max(legacy - correct, 0)
    return AnswerRow(stamp, legacy, correct - off, broker, correct, redelivered, missed)
