"""The last record of each key, slowly: by lists of batches and dicts, for random topics.

Made apart from the package's code, from Kafka 2.4.0 ``Cleaner`` and ``ProducerStateManager``.
"""

from __future__ import annotations

import random
from dataclasses import replace

from models.chance_logs import chance_log
from models.log_directory import Log, Segment

KEYS = (None, b"", b"a", b"b", b"key", b"another key", b"x" * 300)


def topic_logs(seed, partitions):
    """Logs of a topic, by partition: few keys, tombstones, transactions, and no key at all."""
    logs = {}
    for partition in range(partitions):
        chance = random.Random(f"{seed}/{partition}")
        log, _ = chance_log(chance, is_clean=False)
        count = chance.choice((2, 7, 60))
        keys = [*KEYS, *(b"%d" % number for number in range(count))]
        segments = tuple(
            Segment(each.base_offset, tuple(_with_keys(b, chance, keys) for b in each.batches))
            .indexed(interval=60)
            for each in log.segments
        )
        logs[partition] = Log(segments, False, log.checkpointed_start)
    return logs


def _with_keys(batch, chance, keys):
    """A batch with other keys, and some null values; a marker as it is."""
    if batch.is_control:
        return batch
    rows = (
        row._replace(key=chance.choice(keys), value=None if chance.random() < 0.2 else row.value)
        for row in batch.rows
    )
    return replace(batch, rows=tuple(rows))


def write_topic(root, topic, logs):
    """Write the logs, and the log start offsets of those that have one."""
    root.mkdir(parents=True)
    starts = {}
    for partition, log in logs.items():
        directory = root / f"{topic}-{partition}"
        directory.mkdir()
        for segment in log.segments:
            segment.write(directory)
        if log.checkpointed_start is not None:
            starts[partition] = log.checkpointed_start
    lines = "".join(f"{topic} {partition} {start}\n" for partition, start in starts.items())
    (root / "log-start-offset-checkpoint").write_text(f"0\n{len(starts)}\n{lines}")
    return root


def committed(log):
    """The records of committed or no transactions before the last stable offset."""
    open_since, open_batches, aborted = {}, {}, set()
    for number, batch in enumerate(log.batches):
        producer = batch.producer_id
        if batch.is_control:
            ended = open_batches.pop(producer, [])
            open_since.pop(producer, None)
            if batch.rows[0].key[2:] == b"\0\0":
                aborted.update(ended)
        elif batch.is_transactional:
            open_since.setdefault(producer, batch.base_offset)
            open_batches.setdefault(producer, []).append(number)
    end = min(open_since.values(), default=2**63)
    return [
        record
        for number, batch in enumerate(log.batches)
        if not batch.is_control and number not in aborted
        for record in batch.records
        if log.start_offset <= record[0] < end
    ]


def latest(logs, *, include_tombstones=False, until=None):
    """[(partition, record)] of each key's last record, in order.

    `logs` maps partitions to records; of those with the key, the partition counts that has the
    newest one by timestamp, the highest of equally new ones.
    """
    best = {}
    for partition, records in sorted(logs.items()):
        newest, last = {}, {}
        for record in records:
            _, timestamp, _, key, *_ = record
            if key is None or (until is not None and timestamp >= until):
                continue
            newest[key] = max(newest.get(key, timestamp), timestamp)
            last[key] = (partition, record)
        for key, found in last.items():
            if key not in best or newest[key] >= best[key][0]:
                best[key] = (newest[key], found)
    found = sorted((each for _, each in best.values()), key=lambda each: (each[0], each[1][0]))
    return [each for each in found if include_tombstones or each[1][4] is not None]
