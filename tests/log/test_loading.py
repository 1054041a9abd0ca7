"""Loading a partition as a broker does: what counts, what is skipped, and what is assumed."""

import doctest
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.loaded_log import BASES, STATES, TYPES, UUID, bounds, listing, transactions
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded
from models.refused import refused

import kafkastore
from kafkastore import CorruptCheckpointError, UnknownLogStartWarning, samples
from kafkastore.errors import DuplicatePartitionError
from kafkastore.log.log_dir import SkippedKind
from kafkastore.log.log_view import BoundSource
from kafkastore.log.partition_files import PartitionFiles

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


def batches(*offsets):
    return tuple(Batch((Row(offset, 10 * offset, b"k%d" % offset, b"v"),)) for offset in offsets)


def segment(*offsets):
    return Segment(offsets[0], batches(*offsets)).indexed()


THREE = Log((segment(0, 1, 2), segment(3, 4, 5), segment(6, 7, 8)))


@pytest.fixture
def logs(tmp_path):
    """A log directory with the partition t-0 of three segments."""
    return THREE.write(tmp_path / "logs")


def offsets_of(root, key="t-0"):
    return [record.offset for record in kafkastore.open(root)[key].records()]


def name(base_offset, suffix):
    return f"{base_offset:020}{suffix}"


def write(root, *names):
    for each in names:
        (root / "t-0" / each).write_bytes(b"")


# Files next to the three segments, and what the next start does with each.
LEFTOVERS = {
    "a deleted log": ({name(0, ".log.deleted"): "delete"}),
    "a deleted index": ({name(9, ".index.deleted"): "delete"}),
    "a deleted snapshot": ({name(9, ".snapshot.deleted"): "delete"}),
    "a cleaned log and its indexes": (
        {name(0, ".log.cleaned"): "delete", name(0, ".timeindex.cleaned"): "delete"}),
    "a swapped log": ({name(3, ".log.swap"): "replace-segments"}),
    "a swapped log with its index": (
        {name(3, ".log.swap"): "replace-segments", name(3, ".index.swap"): "rename"}),
    "an index to be swapped alone": (
        {name(3, ".index.swap"): "delete"}),
    "an unfinished split": (
        {name(0, ".log.cleaned"): "delete", name(3, ".log.swap"): "delete"}),
    "a finished part below an unfinished one": (
        {name(3, ".log.cleaned"): "delete", name(0, ".log.swap"): "replace-segments"}),
    "an orphaned index": ({name(9, ".index"): "delete"}),
    "orphaned indexes of each kind": (
        {name(9, ".index"): "delete", name(9, ".timeindex"): "delete",
         name(9, ".txnindex"): "delete"}),
    "KRaft snapshots": (
        {f"{7:020}-{3:010}.checkpoint.deleted": "delete",
         f"{7:020}-{3:010}-123.checkpoint.part": "delete"}),
    "names of no segment": (
        {"9.log": "fail", f"{2**63:020}.log": "fail",
         f"{2**63:020}.index": "fail", "x.snapshot": "fail"}),
    "what is in its place": ({}),
}
IN_PLACE = (
    name(9, ".snapshot"), name(3, ".txnindex"), "leader-epoch-checkpoint", "partition.metadata",
    f"{7:020}-{3:010}.checkpoint", "notes.txt",
)


@pytest.mark.parametrize("done", LEFTOVERS.values(), ids=LEFTOVERS)
def test_leftovers_are_skipped_and_reported_with_what_a_start_does(logs, done):
    write(logs, *done, *IN_PLACE)
    log = kafkastore.open(logs)["t-0"]
    assert [record.offset for record in log.records()] == list(range(9))
    assert [each.path for each in log.leftovers] == [log.path / each for each in sorted(done)]
    for note in log.leftovers:
        assert done[note.path.name] == note.start_action
        assert note.what
        assert note.at_next_start
        assert note.path.exists()


def test_missing_indexes_are_reported_by_segment(logs):
    absent = (name(0, ".timeindex"), name(6, ".index"), name(6, ".timeindex"))
    for each in absent:
        (logs / "t-0" / each).unlink()
    log = kafkastore.open(logs)["t-0"]
    assert [note.path.name for note in log.missing_indexes] == list(absent)
    assert [(note.kind, note.start_action) for note in log.missing_indexes] == [
        ("missing-time-index", "create-empty"),
        ("missing-offset-index", "recover-segment"),
        ("missing-time-index", "create-empty"),
    ]
    assert [record.offset for record in log.records(2, 8)] == [2, 3, 4, 5, 6, 7]
    assert kafkastore.open(logs)["t-0"].leftovers == []


NAMES = st.builds(
    "{:020}{}{}".format, st.sampled_from(BASES), st.sampled_from(TYPES), st.sampled_from(STATES)
)


@bounded(150)
@given(st.sets(NAMES, max_size=14))
def test_a_listing_reports_what_the_model_reports(names):
    with tempfile.TemporaryDirectory() as directory:
        for each in names:
            (Path(directory) / each).touch()
        files = PartitionFiles(Path(directory))
        live, swapped, missing, leftovers = listing(sorted(names))
        assert (files.base_offsets, files.swapped_offsets) == (live, swapped)
        assert [note.path.name for note in files.missing_indexes] == missing
        found = {note.path.name: note.start_action == "delete" for note in files.leftovers}
        assert found == leftovers


def replacement_steps(old, new):
    """The renames by which a broker replaces old segments by new ones."""
    for base in reversed(new):
        for suffix in (".log", ".index", ".timeindex"):
            yield name(base, suffix + ".cleaned"), name(base, suffix + ".swap")
    for base in old:
        for suffix in (".log", ".index", ".timeindex"):
            yield name(base, suffix), name(base, suffix + ".deleted")
    for base in new:
        for suffix in (".log", ".index", ".timeindex"):
            yield name(base, suffix + ".swap"), name(base, suffix)


# Old segments, and what the new ones hold: of 0, 1, ... 8 in three segments.
REPLACEMENTS = {
    "compaction of two into one": ((0, 3), {0: (0, 2, 5)}),
    "compaction of one": ((3,), {3: (3, 5)}),
    "compaction of all": ((0, 3, 6), {0: (8,)}),
    "a split in two": ((3,), {3: (3, 4), 5: (5,)}),
    "a split in three": ((0,), {0: (0,), 1: (1,), 2: (2,)}),
}


@pytest.mark.parametrize(("old", "new"), REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_crash_at_any_rename_of_a_replacement_neither_loses_nor_repeats_records(logs, old, new):
    """Kafka's tests of recovery from crashes of the cleaner and of splitting, for reading."""
    partition = logs / "t-0"
    with tempfile.TemporaryDirectory(dir=logs.parent) as directory:
        for base, kept in new.items():
            Segment(base, batches(*kept)).indexed().write(Path(directory))
        for path in Path(directory).iterdir():
            path.rename(partition / f"{path.name}.cleaned")
    before = offsets_of(logs)
    untouched = [
        each for each in before
        if not any(base <= each < base + 3 for base in old)
    ]
    after = sorted(untouched + [each for kept in new.values() for each in kept])
    assert before == list(range(9))
    seen = []
    for source, target in replacement_steps(old, new):
        (partition / source).rename(partition / target)
        seen.append(offsets_of(logs))
        log = kafkastore.open(logs)["t-0"]
        assert log.log_end_offset == 9
        starts = [each.base_offset for each in log.segments]
        assert [each.next_base_offset for each in log.segments] == [*starts[1:], None]
    switch = next(number for number, found in enumerate([*seen, after]) if found == after)
    assert seen == [before] * switch + [after] * (len(seen) - switch)
    assert seen[-1] == after


def checkpoint(offset=None, topic="t"):
    lines = [] if offset is None else [f"{topic} 0 {offset}"]
    return "".join(f"{line}\n" for line in ("0", len(lines), *lines)).encode()


#: Log start offset checkpoints, the start that follows, its source, whether they are damaged.
LOG_START_FILES = {
    "no file": (None, 3, BoundSource.FIRST_SEGMENT, False),
    "no line": (checkpoint(), 3, BoundSource.FIRST_SEGMENT, False),
    "a line of another partition": (checkpoint(7, "other"), 3, BoundSource.FIRST_SEGMENT, False),
    "an empty file": (b"", 3, BoundSource.FIRST_SEGMENT, False),
    "below the first segment": (checkpoint(1), 3, BoundSource.FIRST_SEGMENT, False),
    "in the first segment": (checkpoint(4), 4, BoundSource.CHECKPOINT, False),
    "in a later segment": (checkpoint(7), 7, BoundSource.CHECKPOINT, False),
    "past the end": (checkpoint(70), 70, BoundSource.CHECKPOINT, False),
    "cut off": (checkpoint(7)[:4], 3, BoundSource.FIRST_SEGMENT, True),
    "of another version": (b"1\n0\n", 3, BoundSource.FIRST_SEGMENT, True),
    "no text": (b"\xff\xfe", 3, BoundSource.FIRST_SEGMENT, True),
}


@pytest.mark.parametrize(
    ("data", "start", "source", "is_damaged"), LOG_START_FILES.values(), ids=LOG_START_FILES
)
def test_the_log_start_is_that_of_the_checkpoint_or_of_the_first_segment(
    logs, data, start, source, is_damaged
):
    for path in (logs / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    if data is not None:
        (logs / LOG_STARTS).write_bytes(data)
    log = kafkastore.open(logs)["t-0"]
    found = log.explain_bounds().log_start_offset
    with pytest.warns(UnknownLogStartWarning) if is_damaged else nullcontext():
        assert log.log_start_offset == found.offset == start
    assert found.source is source
    assert [record.offset for record in log.records()] == list(range(start, 9))
    assert (found.error is not None) == is_damaged
    damaged = [each.path for each in log.log_dir.corrupt_checkpoints]
    assert damaged == [logs / LOG_STARTS] * is_damaged


@pytest.mark.parametrize(
    ("data", "wanted"),
    [(None, None), (checkpoint(5), 5), (checkpoint(), None), (b"0\n3\n", 0), (b"x", 0)],
    ids=["no file", "a line", "no line", "cut off", "no text"],
)
def test_a_damaged_recovery_point_file_is_0_as_for_a_broker(logs, data, wanted):
    if data is not None:
        (logs / RECOVERY_POINTS).write_bytes(data)
    log = kafkastore.open(logs)["t-0"]
    assert log.recovery_point == wanted
    assert len(log.log_dir.corrupt_checkpoints) == (wanted == 0)


#: Requested high watermarks, the checkpoint, what is found for offsets 3 to 9, and its source.
HIGH_WATERMARK_CHOICES = {
    "the log end": ("log-end", checkpoint(4), 9, BoundSource.LOG_END),
    "the checkpoint": ("checkpoint", checkpoint(4), 4, BoundSource.CHECKPOINT),
    "a checkpoint past the end": ("checkpoint", checkpoint(10), 9, BoundSource.LOG_END),
    "a checkpoint before the start": ("checkpoint", checkpoint(1), 3, BoundSource.LOG_START),
    "no checkpoint": ("checkpoint", None, 3, BoundSource.LOG_START),
    "no line in the checkpoint": ("checkpoint", checkpoint(), 3, BoundSource.LOG_START),
    "an offset": (7, checkpoint(4), 7, BoundSource.CALLER),
    "an offset past the end": (2**62, None, 9, BoundSource.LOG_END),
    "an offset before the start": (-1, None, 3, BoundSource.LOG_START),
}


@pytest.mark.parametrize(
    ("choice", "data", "wanted", "source"), HIGH_WATERMARK_CHOICES.values(),
    ids=HIGH_WATERMARK_CHOICES,
)
def test_the_high_watermark_is_the_requested_one(logs, choice, data, wanted, source):
    (logs / LOG_STARTS).write_bytes(checkpoint(3))
    if data is not None:
        (logs / HIGH_WATERMARKS).write_bytes(data)
    log = kafkastore.open(logs)["t-0"]
    found_bounds = log.explain_bounds(choice)
    assert found_bounds.high_watermark.offset == found_bounds.last_stable_offset.offset == wanted
    assert found_bounds.high_watermark.source is source
    assert found_bounds.last_stable_offset.source is BoundSource.HIGH_WATERMARK
    assert log.high_watermark == 9


def test_a_corrupt_high_watermark_is_an_error_only_if_requested(logs):
    (logs / HIGH_WATERMARKS).write_bytes(b"0\n2\nt 0 5\n")
    log = kafkastore.open(logs)["t-0"]
    assert log.explain_bounds().high_watermark.offset == 9
    with pytest.raises(CorruptCheckpointError) as caught:
        log.explain_bounds("checkpoint")
    assert caught.value.path == logs / HIGH_WATERMARKS
    assert [each.path.name for each in log.log_dir.corrupt_checkpoints] == [HIGH_WATERMARKS]


@pytest.mark.parametrize("choice", ["", "log_end", None, 3.5, True])
def test_another_high_watermark_is_refused(logs, choice):
    with refused("high_watermark"):
        kafkastore.open(logs)["t-0"].explain_bounds(choice)


def test_bounds_of_a_lone_directory_do_not_use_checkpoints(logs):
    (logs / LOG_STARTS).write_bytes(checkpoint(3))
    log = kafkastore.open(logs / "t-0")["t-0"]
    found_bounds = log.explain_bounds("checkpoint")
    assert found_bounds.log_start_offset.offset == found_bounds.high_watermark.offset == 0
    assert found_bounds.log_start_offset.source is BoundSource.FIRST_SEGMENT
    assert found_bounds.high_watermark.source is BoundSource.LOG_START
    assert found_bounds.log_start_offset.error is None


def test_the_log_end_has_the_error_of_unreadable_bytes_after_it(logs):
    path = logs / "t-0" / name(6, ".log")
    sound = path.read_bytes()
    torn = (9).to_bytes(8, "big") + sound[8:70]
    for tail, is_corrupt in (
        (b"", False), (bytes(500), False), (torn, False), (b"\xff" * 200, True)
    ):
        path.write_bytes(sound + tail)
        found = kafkastore.open(logs)["t-0"].explain_bounds().log_end_offset
        assert (found.offset, found.source) == (9, BoundSource.LAST_BATCH)
        assert (found.error is not None) == is_corrupt
        if is_corrupt:
            assert (found.error.path, found.error.position) == (path, len(sound))
            assert str(found.error) in found.basis


def test_an_empty_partition_has_bounds_without_a_segment(logs):
    for path in (logs / "t-0").iterdir():
        path.unlink()
    found_bounds = kafkastore.open(logs)["t-0"].explain_bounds()
    assert {bound.offset for bound in found_bounds} == {0}
    assert found_bounds.log_start_offset.source is BoundSource.NO_SEGMENT
    assert found_bounds.log_end_offset.source is BoundSource.NO_SEGMENT


LINES = st.one_of(st.none(), st.integers(-1, 60))


@bounded(150)
@given(
    st.randoms(use_true_random=False), st.sampled_from([0, 0, 20]), LINES, LINES,
    st.one_of(st.sampled_from(["log-end", "checkpoint"]), st.integers(-1, 60)),
)
def test_bounds_are_those_of_the_model(source, base, start_line, watermark_line, choice):
    found = transactions(source, source.randrange(14), base)
    cut = source.randrange(len(found) + 1)
    parts = [found[:cut], found[cut:]]
    segments = [Segment(base, parts[0])]
    if parts[0] and parts[1]:
        segments.append(Segment(parts[1][0].base_offset, parts[1]))
    else:
        segments = [Segment(base, found)]
    log = Log(tuple(segments), checkpointed_start=start_line)
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        if watermark_line is not None:
            (root / HIGH_WATERMARKS).write_bytes(checkpoint(watermark_line))
        opened = kafkastore.open(root)["t-0"]
        found_bounds = opened.explain_bounds(choice)
        assert tuple(bound.offset for bound in found_bounds) == bounds(
            log, start_line=start_line, watermark_line=watermark_line, high_watermark=choice
        )
        assert opened.last_stable_offset == bounds(log, start_line=start_line)[3]
        assert all(bound.basis for bound in found_bounds)


def test_future_directories_are_listed_and_can_be_read(logs, tmp_path):
    future = logs / f"t-0.{UUID}-future"
    other = Log(THREE.segments[:2]).write(tmp_path / "other")
    (other / "t-0").rename(future)
    (other / "t-1").mkdir()
    store = kafkastore.open((logs, other))
    assert list(store.partitions) == [("t", 0), ("t", 1)]
    assert list(store.future_partitions) == [("t", 0)]
    twin = store.future_partitions["t", 0]
    assert twin.path == future
    assert [record.offset for record in twin.records()] == list(range(6))
    assert offsets_of((logs, other)) == list(range(9))
    (skipped,) = store.log_dirs[0].skipped
    assert skipped.path == future
    assert skipped.kind is SkippedKind.FUTURE
    assert offsets_of(future) == list(range(6))


def test_a_partition_in_several_places_is_listed_as_such(logs, tmp_path):
    second, third = (THREE.write(tmp_path / each) for each in ("second", "third"))
    store = kafkastore.open((logs, second, third))
    paths = tuple(root / "t-0" for root in (logs, second, third))
    assert dict(store.partitions.duplicates) == {("t", 0): paths}
    with pytest.raises(DuplicatePartitionError) as caught:
        store["t-0"]
    assert caught.value.places == {("t", 0): list(paths)}
    assert dict(kafkastore.open(logs).partitions.duplicates) == {}


@pytest.mark.parametrize("name", ["t-00", "t-+0"])
def test_two_names_of_one_partition_in_a_directory_are_reported(logs, name):
    (logs / name).mkdir()
    store = kafkastore.open(logs)
    assert offsets_of(logs) == list(range(9))
    (skipped,) = store.log_dirs[0].skipped
    assert skipped.path == logs / name
    assert skipped.kind is SkippedKind.DUPLICATE


@pytest.mark.parametrize("name", ["t-00", "t-+0"])
def test_two_logs_of_one_partition_in_a_directory_are_both_named(logs, name):
    shutil.copytree(logs / "t-0", logs / name)
    store = kafkastore.open(logs)
    assert dict(store.partitions.duplicates) == {("t", 0): (logs / "t-0", logs / name)}
    with pytest.raises(DuplicatePartitionError):
        store["t-0"]


@pytest.mark.parametrize("kind", [SkippedKind.DELETED, SkippedKind.STRAY, SkippedKind.FUTURE])
def test_directories_with_a_suffix_are_reported_with_their_fate(logs, kind):
    suffix = {SkippedKind.DELETED: "delete"}.get(kind, kind.name.lower())
    (logs / f"t-1.{UUID}-{suffix}").mkdir()
    (skipped,) = kafkastore.open(logs).log_dirs[0].skipped
    assert skipped.kind is kind


def test_opening_and_querying_change_nothing_on_disk(logs):
    write(logs, *(each for done in LEFTOVERS.values() for each in done))

    def state():
        found = sorted(logs.rglob("*"))
        return [(p, p.stat().st_mtime_ns, p.is_file() and p.read_bytes()) for p in found]

    before = state()
    log = kafkastore.open(logs)["t-0"]
    assert log.leftovers
    log.explain_bounds()
    list(log.records(isolation="read_committed"))
    log.refresh()
    log.explain_bounds("checkpoint")
    assert state() == before


def test_read_values_are_kept_until_a_refresh(logs):
    log = kafkastore.open(logs)["t-0"]
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 9, 3)
    replace(segment(9, 10)).write(logs / "t-0")
    (logs / LOG_STARTS).write_bytes(checkpoint(4))
    (logs / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n5 2\n")
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 9, 3)
    log.refresh()
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (4, 11, 4)
    assert log.leader_epochs == ((5, 2),)
    assert [record.offset for record in log.records()] == list(range(4, 11))


def test_the_example_of_the_document_is_true(tmp_path, monkeypatch):
    samples.unpack(tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "loading.md").read_text().replace("```", "\n")
    example = doctest.DocTestParser().get_doctest(text, {}, "loading.md", None, 0)
    assert len(example.examples) == 4
    assert doctest.DocTestRunner().run(example).failed == 0
