"""Verification against the metadata of the cluster: topic ids, replicas, configurations."""

import pickle
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from models import metadata_directory as made
from models.log_directory import Log, Segment
from models.metadata_directory import DIRECTORY, TOPIC_ID
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

import kafkastore
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.checks.predict import Outcome
from kafkastore.checks.verify import ClusterCheck
from kafkastore.cli.command_list import cli
from kafkastore.errors import InvalidConfigError
from kafkastore.jobs.verify import VerifyJob, verify
from kafkastore.runner import run_here

NOW = 1_500_000_000_000
THIRD_ID = "LLUaxMTSAjCqPAQzcBqc0Q"
#: Partition directory -> its topic id, and what its own finding says.
DIRECTORIES = {
    "known-0": (TOPIC_ID, None),
    "known-1": (TOPIC_ID, FindingKind.NOT_A_REPLICA),
    "known-2": (DIRECTORY, FindingKind.TOPIC_ID_MISMATCH),
    "known-3": (None, FindingKind.MISSING_TOPIC_ID),
    "known-9": (TOPIC_ID, FindingKind.NOT_IN_CLUSTER),
    "other-0": (THIRD_ID, FindingKind.NOT_IN_CLUSTER),
    "nameless-0": (None, FindingKind.MISSING_TOPIC_ID),
    # Its broker has the partition of this id, under another name.
    "renamed-0": (TOPIC_ID, FindingKind.TOPIC_ID_MISMATCH),
}
STRAY_KINDS = {
    FindingKind.NOT_A_REPLICA, FindingKind.TOPIC_ID_MISMATCH, FindingKind.MISSING_TOPIC_ID,
    FindingKind.NOT_IN_CLUSTER,
}


def write_partition(root: Path, name: str, topic_id: str | None, times=(NOW,) * 3, gap=0) -> Path:
    """Write a partition with a batch for each time, in two segments if there is a gap."""
    batches = in_a_row([Batch((Row(0, time, b"k", b"v"),)) for time in times])
    segments = [Segment(0, tuple(batches)).indexed()]
    if gap:
        later = [each.with_offset(len(times) + gap + slot) for slot, each in enumerate(batches)]
        segments.append(Segment(len(times) + gap, tuple(later)).indexed())
    written = Log(tuple(segments)).write(root.parent / f"staged-{name}") / "t-0"
    written.rename(root / name)
    if topic_id is not None:
        (root / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return root / name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory of broker 1, not yet with the metadata."""
    found = tmp_path / "logs"
    found.mkdir()
    (found / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id=Cc\ndirectory.id={DIRECTORY}\n"
    )
    return found


def write_metadata(root: Path, *frames: bytes) -> Path:
    directory = root / "__cluster_metadata-0"
    made.write_log(directory, [made.broker(1, 1), *frames])
    return directory


def known_topic(*replicas: tuple[int, ...], **fields) -> list[bytes]:
    frames = [made.partition(number, replicas=each, **fields)
              for number, each in enumerate(replicas)]
    return [made.topic("known"), *frames]


def kinds_of(path, **options) -> dict[str, set[FindingKind]]:
    """The kinds of findings above style, by partition of a topic."""
    found: dict[str, set[FindingKind]] = {}
    for each in verify(path, **options):
        name = each.path.relative_to(path).parts[0]
        if each.severity is not Severity.STYLE and (path / name).is_dir() and name[0] != "_":
            found.setdefault(name, set()).add(each.kind)
    return found


@pytest.fixture
def strays(root: Path) -> Path:
    for name, (topic_id, _) in DIRECTORIES.items():
        write_partition(root, name, topic_id)
    write_metadata(root, *known_topic((1,), (2,), (1,), (1,)))
    return root


def test_each_partition_is_compared_with_the_cluster(strays: Path) -> None:
    assert kinds_of(strays) == {
        name: {kind} for name, (_, kind) in DIRECTORIES.items() if kind is not None
    }


def test_the_findings_are_those_logs_that_a_start_is_predicted_to_make_stray(strays: Path) -> None:
    predicted = {
        each.path.name for each in kafkastore.predict_start(strays)
        if each.outcome in (Outcome.BECOMES_STRAY, Outcome.IS_NOT_SERVED)
    }
    found = kinds_of(strays)
    assert predicted == {name for name, kinds in found.items() if kinds & STRAY_KINDS}
    assert len(predicted) == len(DIRECTORIES) - 1


def test_the_metadata_may_be_elsewhere_and_wins_over_that_of_the_store(
    strays: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "new" / "__cluster_metadata-0"
    made.write_log(elsewhere, [made.topic("other", THIRD_ID), made.partition(0, THIRD_ID)])
    kinds = kinds_of(strays, metadata=elsewhere)
    assert "other-0" not in kinds
    assert kinds["known-0"] == {FindingKind.NOT_IN_CLUSTER}


def test_only_chosen_partitions_are_compared(strays: Path) -> None:
    found = {each.kind for each in verify(strays, partitions=["known-1"])}
    assert found & STRAY_KINDS == {FindingKind.NOT_A_REPLICA}


def test_without_metadata_topic_ids_are_compared_with_each_other_only(strays: Path) -> None:
    (strays / "__cluster_metadata-0").rename(strays.parent / "__cluster_metadata-0")
    found = kinds_of(strays)
    assert set().union(*found.values()) == {
        FindingKind.TOPIC_ID_MISMATCH, FindingKind.MISSING_TOPIC_ID
    }
    assert "known-1" not in found


def test_the_remedy_for_a_missing_topic_id_writes_what_a_broker_writes(strays: Path) -> None:
    (finding,) = (
        each for each in verify(strays, partitions=["known-3"])
        if each.kind is FindingKind.MISSING_TOPIC_ID
    )
    assert finding.path == strays / "known-3" / "partition.metadata"
    program, *arguments = shlex.split(finding.remedy)
    assert program == "kafkastore"
    result = CliRunner().invoke(cli, [*arguments, "--in-place", "--yes"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert finding.path.read_bytes() == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert "known-3" not in kinds_of(strays)


def test_no_command_gives_an_id_to_a_log_that_the_broker_should_not_have(strays: Path) -> None:
    (finding,) = (
        each for each in verify(strays, partitions=["nameless-0"])
        if each.kind is FindingKind.MISSING_TOPIC_ID
    )
    assert not finding.remedy.startswith("kafkastore ")


def test_the_id_of_another_topic_of_the_cluster_is_not_that_of_this_one(root: Path) -> None:
    write_partition(root, "known-0", DIRECTORY)
    write_metadata(
        root, *known_topic((1,)), made.topic("other", DIRECTORY),
        made.partition(0, DIRECTORY, replicas=(1,)),
    )
    assert kinds_of(root)["known-0"] == {FindingKind.TOPIC_ID_MISMATCH}


def test_a_corrupt_topic_id_is_not_missing_too(strays: Path) -> None:
    (strays / "known-3" / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    assert kinds_of(strays)["known-3"] == {FindingKind.CORRUPT_PARTITION_METADATA}


def test_corrupt_meta_properties_are_a_finding_next_to_those_of_the_cluster(
    strays: Path, tmp_path: Path
) -> None:
    (strays / "meta.properties").write_bytes(b"version=1\nnode.id=\\u12\n")
    metadata = (strays / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    found = [each.kind for each in verify(strays, metadata=metadata)]
    assert FindingKind.CORRUPT_META_PROPERTIES in found
    assert FindingKind.TOPIC_ID_MISMATCH in found
    assert FindingKind.NOT_A_REPLICA not in found  # whose directory it is, is unknown


OTHER_DIRECTORY = "hxQ8mSd6QpWm3zWkQ2yqAQ"


@pytest.mark.parametrize(("registered", "assigned", "is_missing"), [
    ((DIRECTORY,), DIRECTORY, True),
    ((DIRECTORY, OTHER_DIRECTORY), DIRECTORY, True),
    ((DIRECTORY, OTHER_DIRECTORY), OTHER_DIRECTORY, False),  # that one was not given
    ((DIRECTORY, OTHER_DIRECTORY), None, False),  # it may be in the one that was not given
    ((DIRECTORY,), None, True),
    ((), None, True),  # before 3.7
])
def test_a_partition_is_missing_where_the_metadata_assigns_it(
    root: Path, registered, assigned, is_missing
) -> None:
    write_partition(root, "known-0", TOPIC_ID)
    directories = () if assigned is None else (assigned, DIRECTORY)
    made.write_log(root / "__cluster_metadata-0", [
        made.broker(1, 1, log_dirs=registered), made.topic("known"),
        made.partition(0, replicas=(1, 2), directories=directories),
        made.partition(1, replicas=(1, 2), directories=directories),
        made.partition(2, replicas=(2,), directories=(DIRECTORY,)),
    ])
    missing = [each.path for each in verify(root) if each.kind is FindingKind.MISSING_PARTITION]
    assert missing == ([root / "known-1"] if is_missing else [])


def gaps(root: Path) -> list[FindingKind]:
    return [each.kind for each in verify(root) if each.kind is FindingKind.MISSING_OFFSETS]


@pytest.mark.parametrize(("policy", "count"), [
    ("compact", 0), ("compact,delete", 0), ("delete", 1), (None, 1),
])
def test_missing_offsets_are_normal_in_a_compacted_topic(root: Path, policy, count) -> None:
    write_partition(root, "known-0", TOPIC_ID, gap=5)
    config = [] if policy is None else [made.config("cleanup.policy", policy, "known")]
    assert len(gaps(root)) == 1
    write_metadata(root, *known_topic((1,)), *config)
    assert len(gaps(root)) == count


CONFIGURED = {
    "no time limit": ([("retention.ms", "-1")], False),
    "compacted only": ([("cleanup.policy", "compact")], False),
    "both policies": ([("cleanup.policy", "compact,delete")], True),
    "a time limit": ([("retention.ms", "1000")], True),
    "nothing known": ([], True),  # server.properties may have a limit, or not
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_retention_is_a_risk_only_for_topics_that_have_it(root: Path, name: str) -> None:
    options, is_risk = CONFIGURED[name]
    times = [NOW // 1000] * 3
    write_partition(root, "known-0", TOPIC_ID, times)
    inactive = write_partition(root, "known-1", TOPIC_ID, gap=1)
    index = sorted(inactive.glob("*.timeindex"))[0]
    index.write_bytes(index.read_bytes() + bytes(12 * 50))
    (root / ".kafka_cleanshutdown").touch()  # no broker rebuilds the index
    configs = [made.config(key, value, "known") for key, value in options]
    write_metadata(root, *known_topic((1,), (1,)), *configs)
    found = {each.kind for each in verify(root)} - {FindingKind.MISSING_OFFSETS}
    risks = {FindingKind.TIMESTAMP_IN_SECONDS, FindingKind.ZERO_TIME_INDEX_ENTRIES}
    kept = {FindingKind.KEPT_TIMESTAMP_IN_SECONDS, FindingKind.KEPT_ZERO_TIME_INDEX_ENTRIES}
    assert found & (risks | kept) == (risks if is_risk else kept)


def test_an_unknown_value_of_a_configuration_is_the_failure_of_its_topic_alone(
    root: Path,
) -> None:
    for name in ("known-0", "nameless-0"):
        write_partition(root, name, None)
    write_metadata(root, *known_topic((1,)), made.config("compression.type", "lzma", "known"))
    store = kafkastore.open(root)
    job = VerifyJob(cluster=ClusterCheck.of(kafkastore.cluster(root), store))
    failures = {
        str(each.topic_partition): [type(error) for error in each.failures]
        for each in job.results(list(job.items(store)), run_here)
    }
    assert failures["known-0"] == [InvalidConfigError]
    assert failures["nameless-0"] == []


def test_the_check_works_in_other_processes(strays: Path) -> None:
    store = kafkastore.open(strays)
    job = VerifyJob(cluster=ClusterCheck.of(kafkastore.cluster(strays), store))
    items = list(job.items(store))
    sent, those = pickle.loads(pickle.dumps((job, items)))
    assert [each.findings for each in sent.results(those, run_here)] == [
        each.findings for each in job.results(items, run_here)
    ]


def test_an_interval_above_the_size_of_a_segment_leaves_its_index_empty(root: Path) -> None:
    partition = write_partition(root, "known-0", TOPIC_ID)
    value = b"v" * 100_000
    rows = [Batch((Row(0, NOW, b"k", value),)) for _ in range(12)]
    (partition / f"{0:020}.log").write_bytes(b"".join(each.data for each in in_a_row(rows)))
    (partition / f"{0:020}.index").write_bytes(b"")
    frames = known_topic((1,))
    write_metadata(root, *frames, made.config("index.interval.bytes", "2000000", "known"))
    empty = FindingKind.EMPTY_OFFSET_INDEX
    assert empty not in {each.kind for each in verify(root)}
    write_metadata(root, *frames)
    assert empty in {each.kind for each in verify(root)}
