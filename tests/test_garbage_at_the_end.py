"""After the last batch, a torn batch and zeros end a log; every reader reports other bytes."""

import os

import pytest
from models.garbage import GARBAGE, next_batch
from models.log_directory import Log, Segment
from models.readers import READERS, Reported, subject_of
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

from kafkastore import KafkaStoreError

NOW = 1_700_000_000_000
LAST = f"t-0/{20:020}.log"
#: Readers of only what comes before the end.
BEFORE_THE_END = {
    "records between",
    "batches between",
    "to_arrow between",
    *(f"times {rules}" for rules in ("0.10.1", "2.4", "4.1", "kip-33")),
}
#: Readers that do not read the batch before, and so do not know the next offset.
FROM_ANYWHERE = {"times by trusted indexes", "dump"}
#: Readers that report the size of a file, or unindexed or uncopied bytes at its end.
OF_FILES = {
    "ls", "ls segments", "spark segments", "retention", "convert", "reindex",
    *(f"job {name}" for name in ("survey", "answers", "migrate", "reindex")),
}  # fmt: skip


@pytest.fixture(params=[0, 1, 2])
def magic(request):
    return request.param


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The logs of `log` by magic: random order would write and read them again and again."""
    return {magic: read_log(tmp_path_factory.mktemp("log") / "logs", magic) for magic in (0, 1, 2)}


@pytest.fixture
def log(logs, magic):
    """A log of 30 records in three segments, and the result of each reader."""
    subject, before = logs[magic]
    path = subject.root / LAST
    status = path.stat()
    yield subject, before
    os.truncate(path, status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def read_log(root, magic):
    batches = in_a_row(
        [Batch((Row(0, NOW + slot, b"k", b"v" * 40),), magic=magic) for slot in range(30)]
    )
    segments = [
        Segment(base, tuple(batches[base : base + 10])).indexed(interval=200)
        for base in (0, 10, 20)
    ]
    subject = subject_of(Log(tuple(segments), is_clean=False).write(root))
    return subject, {name: reader(subject) for name, reader in READERS.items()}


def append(path, data):
    """Append bytes; the modification time, which is a legacy answer, stays."""
    times = path.stat()
    with path.open("ab") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("kind", GARBAGE)
def test_every_reader_reports_bytes_that_begin_no_batch(log, kind):
    subject, before = log
    append(subject.root / LAST, GARBAGE[kind])
    silent = set()
    for name, reader in READERS.items():
        try:
            found = reader(subject)
        except (KafkaStoreError, Reported):
            continue
        assert found == before[name], name
        silent.add(name)
    if kind == "an offset before the end":
        silent -= FROM_ANYWHERE
    assert silent <= BEFORE_THE_END


@pytest.mark.parametrize("size", [1, 8, 11, 17, 18, -1])
def test_wherever_a_batch_is_torn_the_log_ends_before_it(log, magic, size):
    subject, before = log
    append(subject.root / LAST, next_batch(magic)[:size])
    for name, reader in READERS.items():
        assert name in OF_FILES or reader(subject) == before[name], name
