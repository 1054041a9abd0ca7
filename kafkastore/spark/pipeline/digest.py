"""The numbers of a store that the report shows, few however large the store is."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.checks.findings import Finding, FindingKind, Severity
from kafkastore.jobs.compare import AnswerRow
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.pipeline.results import NOTHING, RULES, StoreResult, column

MIB = 1 << 20
#: Distances between entries are counted by powers of two; the last includes all larger ones.
LEAST_POWER, MOST_POWER = 6, 24
_NONE = -1


class Size(NamedTuple):
    """The size of a partition, of a topic, or of the rest of a list.

    `offset_spacing` and `time_spacing` are bytes of log per entry of the offset and of the time
    indexes; None without entries.
    """

    name: str
    partitions: int
    segments: int
    records: int
    bytes: int
    offset_spacing: float | None
    time_spacing: float | None


class Density(NamedTuple):
    """How dense the entries of a store's indexes of one kind are.

    `files` have the index, `missing` do not; logs of `small` are at most one interval. `counts[i]`
    segments have from 2**(`LEAST_POWER` + i) bytes of log per entry; both ends are open.
    """

    kind: str
    files: int
    missing: int
    entries: int
    bytes: int
    small: int
    counts: tuple[int, ...]

    @property
    def per_mib(self) -> float | None:
        """Entries per MiB of log."""
        return self.entries * MIB / self.bytes if self.bytes else None

    @property
    def spacing(self) -> float | None:
        """Bytes of log per entry."""
        return self.bytes / self.entries if self.entries else None


class Differences(NamedTuple):
    """How the answers of one rule differ from the correct ones, in numbers of times.

    `needless` is the reverse of `unanswered`. `most_early` (records are read again) and `most_late`
    (missed) are offsets; `moment` is "before" or "after" the migration, or "".
    """

    rule: str
    moment: str
    times: int
    right: int
    early: int
    late: int
    unanswered: int
    needless: int
    most_early: int
    most_late: int


class FindingGroup(NamedTuple):
    """Findings of one kind, with the text and the path of the first one."""

    kind: FindingKind
    what: str
    before: int
    after: int
    example: Path


class SeverityRow(NamedTuple):
    """The number of findings of one severity, before the migration and after it."""

    severity: Severity
    before: int
    after: int


def sizes_by_topic(store: StoreResult) -> list[Size]:
    """Return the total size of each topic, largest first."""
    topics: dict[str, list[PartitionInventory]] = {}
    for row in store.partitions:
        topics.setdefault(row.place.topic, []).append(row)
    return _by_size(size_of(topic, rows) for topic, rows in topics.items())


def sizes_by_partition(store: StoreResult) -> list[Size]:
    """Return the size of each partition, largest first."""
    return _by_size(size_of(name_of(row), [row]) for row in store.partitions)


def _by_size(sizes: Iterable[Size]) -> list[Size]:
    return sorted(sizes, key=lambda each: (-each.bytes, each.name))


def size_of(name: str, rows: Sequence[PartitionInventory]) -> Size:
    """Return the total size of partitions, under a common name."""
    offset, time = densities(rows)
    return Size(
        name,
        len(rows),
        sum(len(row.segments) for row in rows),
        sum(row.records for row in rows),
        sum(row.place.bytes for row in rows),
        offset.spacing,
        time.spacing,
    )


def largest(store: StoreResult, most: int) -> list[PartitionInventory]:
    """Return at most `most` partitions with the largest logs, in the store's order."""
    order = sorted(range(len(store.partitions)), key=lambda at: -store.partitions[at].place.bytes)
    return [store.partitions[at] for at in sorted(order[:most])]


def name_of(row: PartitionInventory) -> str:
    """Return the name of a partition."""
    return str(row.place.topic_partition)


def densities(rows: Iterable[PartitionInventory]) -> tuple[Density, Density]:
    """Return the densities of the offset and of the time indexes."""
    segments = [segment for row in rows for segment in row.segments]
    sizes = np.array([each.size for each in segments], np.int64)

    def density(kind: str, name: str) -> Density:
        numbers = [getattr(each, name) for each in segments]
        entries = np.array([_NONE if each is None else each for each in numbers], np.int64)
        there = entries != _NONE
        small = there & (sizes <= INDEX_INTERVAL_BYTES)
        counted = (entries > 0) & (sizes > 0)
        powers = np.log2(sizes[counted] / entries[counted]).astype(np.int64)
        counts = np.bincount(
            np.clip(powers, LEAST_POWER, MOST_POWER) - LEAST_POWER,
            minlength=MOST_POWER - LEAST_POWER + 1,
        )
        return Density(
            kind,
            int(there.sum()),
            int((~there).sum()),
            int(entries[there].sum()),
            int(sizes[there].sum()),
            int(small.sum()),
            tuple(counts.tolist()),
        )

    return density("offset", "offset_index_entries"), density("time", "time_index_entries")


def differences(store: StoreResult) -> list[Differences]:
    """Count how the answers of each rule differ from the correct ones.

    Modification times and correct answers are the same before and after the migration.
    """
    before, after = list(store.before.values()), list(store.after.values())
    found = []
    for rule in RULES:
        if rule in ("legacy", "correct"):
            found.append(_differences(rule, "", after if any(after) else before))
        else:
            found += [_differences(rule, "before", before), _differences(rule, "after", after)]
    return found


def _differences(
    rule: str, moment: str, answers: Sequence[Sequence[AnswerRow]]
) -> Differences:
    given, correct = column(answers, rule), column(answers, "correct")
    both = (given != NOTHING) & (correct != NOTHING)
    distance = np.where(both, given - correct, 0)
    return Differences(
        RULES[rule],
        moment,
        len(correct),
        int((given == correct).sum()),
        int((distance < 0).sum()),
        int((distance > 0).sum()),
        int(((given == NOTHING) & (correct != NOTHING)).sum()),
        int(((given != NOTHING) & (correct == NOTHING)).sum()),
        int(-distance.min(initial=0)),
        int(distance.max(initial=0)),
    )


def distances(store: StoreResult, rule: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the times and distances of a rule's wrong offsets before migration.

    Times are in ms since 1970; a distance is the rule's offset, if any, minus the correct one.
    """
    given, correct, stamps = (
        column(store.before.values(), name) for name in (rule, "correct", "target_timestamp")
    )
    wrong = (given != NOTHING) & (correct != NOTHING) & (given != correct)
    return stamps[wrong], (given - correct)[wrong]


def severities(store: StoreResult) -> list[SeverityRow]:
    """Count findings by severity, worst first, including severities without findings."""
    return [
        SeverityRow(
            severity,
            sum(each.severity == severity for each in store.findings_before),
            sum(each.severity == severity for each in store.findings_after),
        )
        for severity in reversed(Severity)
    ]


def grouped(store: StoreResult) -> list[FindingGroup]:
    """Group findings by kind, worst first; a group has the text of its first finding."""
    groups: dict[FindingKind, list[tuple[Finding, bool]]] = {}
    findings = [(each, False) for each in store.findings_before]
    findings += [(each, True) for each in store.findings_after]
    for finding, is_after in findings:
        groups.setdefault(finding.kind, []).append((finding, is_after))
    order = list(Severity)
    return sorted(
        (
            FindingGroup(
                kind,
                members[0][0].what,
                sum(not is_after for _, is_after in members),
                sum(is_after for _, is_after in members),
                members[0][0].path,
            )
            for kind, members in groups.items()
        ),
        key=lambda group: (-order.index(group.kind.severity), -group.before, group.what),
    )
