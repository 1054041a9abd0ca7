"""Real brokers start on directories that we wrote."""

import re
import shutil

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from models.seed import some

import kafkastore
from kafkastore.formats.state.checkpoints import parse_partition_metadata
from kafkastore.writing.log_dir_writer import LogDirWriter

from .test_golden_logs import as_answered
from .written_logs import FIRST_TIMESTAMP, new_records, write_everything

pytestmark = pytest.mark.kafka

# The cluster of the test is younger than some leader epochs in our logs: a broker says so when it
# becomes the leader.
EPOCHS = "EpochEntry"
TROUBLE = re.compile(r"WARN|ERROR|FATAL|[Rr]ecovering|orrupt|[Uu]nclean|no index|index file")
APPENDED = [FIRST_TIMESTAMP + 100_000_000 + number * 1000 for number in range(10)]


def index_files(partition):
    """The files of the segments that are not active."""
    files = sorted(partition.glob("*index"))
    last = max(path.name[:20] for path in files)
    return {path.name: path.read_bytes() for path in files if path.name[:20] != last}


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_brokers_load_what_we_wrote_serve_it_and_append_to_it(load_into_broker, tmp_path, version):
    root = tmp_path / "written"
    names = write_everything(root, version)
    found = list(kafkastore.verify(root))
    assert {finding.severity for finding in found} <= {kafkastore.Severity.STYLE}
    said = load_into_broker(
        [root / name for name in names],
        version,
        topic_config={"segment.index.bytes": 10485760},
        committed=True,
        appended_timestamps=APPENDED,
    )
    logged = said.answers["broker_log"]
    assert not [line for line in logged if TROUBLE.search(line) and EPOCHS not in line]
    ours, theirs = kafkastore.open(root), kafkastore.open(said.logs)
    checked = 0
    for name in names:
        log, partition_answers = ours[name], said.answers["partitions"][name]
        records = [as_answered(record) for record in log.records()]
        assert records == partition_answers["records"], name
        assert log.log_end_offset == partition_answers["log_end_offset"], name
        assert log.last_stable_offset == partition_answers["last_stable_offset"], name
        committed = [record.offset for record in log.records(isolation="read_committed")]
        assert committed == partition_answers["committed_offsets"], name
        for row in partition_answers["list_offsets"]:
            if row["timestamp"] < 0 or row["isolation"]:
                continue
            found = log.offset_for_timestamp(row["timestamp"], version)
            expected = (-1, -1) if found is None else (found.timestamp, found.offset)
            assert (row["result_timestamp"], row["offset"]) == expected, (name, row)
            checked += 1
        assert index_files(root / name).items() <= index_files(said.logs / name).items(), name
        after = [as_answered(record) for record in theirs[name].records()]
        assert after[: len(records)] == records, name
        assert [record[1] for record in after[len(records) :]] == APPENDED, name
        assert after[len(records)][0] == partition_answers["log_end_offset"], name
    assert checked > 300


@pytest.mark.parametrize("version", some(["3.9.1", "4.3.1"], 1, "brokers with topic ids"))
def test_a_broker_accepts_a_partition_by_the_topic_id_that_we_wrote(
    require_broker, tmp_path, version
):
    """In the broker's own log directory; without the id the partition would become a stray one."""
    require_broker(version)
    with JavaClients(WORK) as clients:
        surroundings = Surroundings("load", WORK, clients)
        context = CaseContext(version, "load", tmp_path / "out", surroundings)
        try:
            context.start()
            context.create_topic("t", 1, {}, segment_bytes=1048576)
            context.stop()
            logs = context.cluster.logs
            metadata = (logs / "t-0" / "partition.metadata").read_bytes()
            shutil.rmtree(logs / "t-0")
            with LogDirWriter(logs, version) as log_dir:
                writer = log_dir.writer("t", 0, topic_id=parse_partition_metadata(metadata))
                writer.append_records(new_records(5))
            assert (logs / "t-0" / "partition.metadata").read_bytes() == metadata
            context.start()
            context.ask("t", 0)
            context.stop()
            left = kafkastore.open(logs)["t", 0]
            assert [record.offset for record in left.records()] == [0, 1, 2, 3, 4]
            assert not list(logs.glob("*-stray"))
        finally:
            context.abandon()
            context.remove_run_directory()
