"""Rules for every job: rows match the schema, all runners agree, failures are isolated."""
import pickle
from shutil import copytree

import pyarrow as pa
import pytest
from models.record_format import Batch, Row
from use_cases.stores import T0, commit, record, set_topic_id, share_state, written

import kafkastore
from kafkastore.jobs.best_replicas import BestReplicasJob
from kafkastore.jobs.compare import AnswersJob, AskedPartition, CompareJob
from kafkastore.jobs.failover import FailoverJob
from kafkastore.jobs.group_positions import committed_positions, position_items
from kafkastore.jobs.groups import GroupsJob
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.jobs.job import Job, PartitionJob
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.latency import LatencyJob
from kafkastore.jobs.listing import ListJob, list_logs
from kafkastore.jobs.offsets import OffsetsJob
from kafkastore.jobs.predict import PredictJob
from kafkastore.jobs.retention import RetentionJob
from kafkastore.jobs.share_lag import ShareLagJob, share_positions
from kafkastore.jobs.sizing import SizingJob
from kafkastore.jobs.transactions import TransactionsJob
from kafkastore.jobs.verify import VerifyJob
from kafkastore.runner import Failed, in_threads, run_here
from kafkastore.store.partition_path import list_partition_paths

NOW = T0 + 1000
TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"

#: Each kind of job: the job and its items in a store.
JOBS = {
    AnswersJob: lambda store: (
        AnswersJob(NOW),
        [AskedPartition(path, (T0,)) for path in list_partition_paths("s", store)],
    ),
    BestReplicasJob: lambda store: (BestReplicasJob(), BestReplicasJob.items(store)),
    CompareJob: lambda store: (CompareJob(now=NOW), CompareJob.items(store)),
    FailoverJob: lambda store: (
        FailoverJob(), position_items(committed_positions(store), store, store),
    ),
    GroupsJob: lambda store: (GroupsJob(), GroupsJob.items(store)),
    InventoryJob: lambda store: (InventoryJob(), InventoryJob.items(store)),
    LagJob: lambda store: (LagJob(), position_items(committed_positions(store), store)),
    LatencyJob: lambda store: (LatencyJob(), LatencyJob.items(store, store.partitions)),
    ListJob: lambda store: (ListJob(segments=True), ListJob.items(store)),
    OffsetsJob: lambda store: (
        OffsetsJob((T0, -1), ("legacy", "kip-33", "2.4", "correct"), now=NOW, explains=True),
        OffsetsJob.items(store),
    ),
    PredictJob: lambda store: (PredictJob(), PredictJob().items(store)),
    RetentionJob: lambda store: (RetentionJob(now=NOW), RetentionJob.items(store)),
    ShareLagJob: lambda store: (ShareLagJob(), share_positions(store)),
    SizingJob: lambda store: (SizingJob(), SizingJob.items(store)),
    TransactionsJob: lambda store: (TransactionsJob(), TransactionsJob.items(store)),
    VerifyJob: lambda store: (VerifyJob(), list(VerifyJob().items(store))),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Write logs with a group's offsets, a corrupt partition, and a non-partition directory."""
    root = tmp_path_factory.mktemp("jobs") / "logs"
    with written(root) as partition:
        for number in range(3):
            for step in range(4):
                partition("orders", number).add(record(T0 + step))
            partition("__consumer_offsets").add(commit("billing", "orders", number, 1))
            partition("__share_group_state").add(
                share_state("shared", TOPIC_ID, number, 1, (2, 2, 2, 1))
            )
    opened = Batch(
        (Row(4, T0 + 4, b"k", b"v"),), producer_id=1, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )
    for number in (0, 2):
        (log,) = (root / f"orders-{number}").glob("*.log")
        log.write_bytes(log.read_bytes() + opened.data)
        set_topic_id(root / f"orders-{number}", TOPIC_ID)
    (root / "not a partition").mkdir()
    log = next((root / "orders-1").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"\0\0\0")
    return root


def test_a_list_leaves_out_offsets_that_a_corrupt_log_hides(root, tmp_path):
    copy = copytree(root, tmp_path / "logs")
    log = next((copy / "orders-1").glob("*.log"))
    log.write_bytes(b"\xff" * log.stat().st_size)
    good, bad = list_logs(copy, partitions=["orders-0", "orders-1"])
    assert (good.rows[0]["log_end_offset"], good.error) == (5, None)
    assert bad.rows[0]["log_end_offset"] is None
    assert (bad.error.path, bad.error.position) == (log, 0)
    (quick,) = list_logs(copy, partitions=["orders-1"], quick=True)
    assert quick.error is None
    assert "log_end_offset" not in quick.rows[0]


def test_every_job_is_tested_here():
    def below(kind):
        return {kind} | {each for one in kind.__subclasses__() for each in below(one)}

    known = {each for each in below(Job) if each.__module__.startswith("kafkastore.")}
    assert known - {Job, PartitionJob} == set(JOBS)


@pytest.mark.parametrize("kind", JOBS)
def test_rows_have_the_columns_and_types_of_the_schema(root, kind):
    job, items = JOBS[kind](kafkastore.open(root))
    schema = job.schema()
    assert schema.names[:4] == ["store", "topic", "partition", "path"]
    assert schema.names[-1] == "error"
    found = [row for item in items for row in job.rows_of(item)]
    assert all(set(row) <= set(schema.names) for row in found)
    for field in schema:
        values = [row.get(field.name) for row in found]
        if pa.types.is_map(field.type):
            values = [None if each is None else list(each.items()) for each in values]
        pa.array(values, field.type)
    places = {(row.get("topic"), row.get("partition")) for row in found}
    assert len(places) >= (1 if kind is GroupsJob else 3)


@pytest.mark.parametrize("kind", JOBS)
def test_runners_return_the_same_rows_in_the_order_of_the_items(root, kind):
    job, items = JOBS[kind](kafkastore.open(root))
    job = pickle.loads(pickle.dumps(job))
    items = pickle.loads(pickle.dumps(items))
    found = []
    for runner in (run_here, in_threads(3)):
        outcomes = list(job.outcomes(items, runner))
        assert [item for item, _ in outcomes] == items
        found.append([
            str(result.error) if isinstance(result, Failed) else list(job.rows(result))
            for _, result in outcomes
        ])  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [kind for kind in JOBS if kind is not GroupsJob])
def test_a_missing_partition_does_not_stop_the_others(root, tmp_path, kind):
    copy = copytree(root, tmp_path / "logs")
    job, items = JOBS[kind](kafkastore.open(copy))
    for path in [*(copy / "orders-0").iterdir()]:
        path.unlink()
    (copy / "orders-0").rmdir()
    by_partition = {}
    for item in items:
        for row in job.rows_of(item):
            if row.get("topic") == "orders":
                by_partition.setdefault(row["partition"], []).append(row)
    errors = [row.get("error") or row.get("why") for row in by_partition[0]]
    assert any(each and "orders-0" in each for each in errors)
    assert by_partition[2]
    assert not any(row.get("error") for row in by_partition[2])
