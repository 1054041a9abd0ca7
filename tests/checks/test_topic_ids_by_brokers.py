"""Real brokers serve partitions by the topic ids that were written from their metadata."""

import shutil

import pytest
from checks.test_strays_by_brokers import OTHER_ID
from golden.make import brokers
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from golden.make.server_properties import METADATA_WITH_LOGS
from log.written_logs import new_records
from models.seed import some

import kafkastore
from kafkastore.checks.findings import FindingKind

pytestmark = pytest.mark.kafka

NAMES = ("kept", "foreign", "nameless", "lost")
CONFIGS = {"index.interval.bytes": 200, "compression.type": "zstd"}
FINDINGS = {
    "foreign-0": FindingKind.TOPIC_ID_MISMATCH,
    "nameless-0": FindingKind.MISSING_TOPIC_ID,
    "lost-0": FindingKind.MISSING_PARTITION,
}


def findings_of(logs):
    return {
        each.path.relative_to(logs).parts[0]: each.kind
        for each in kafkastore.verify(logs) if each.kind in FINDINGS.values()
    }


@pytest.mark.parametrize("version", some(["4.1.1", "4.3.1"], 1, __name__))
def test_brokers_serve_a_repaired_and_a_written_partition(require_broker, tmp_path, version):
    require_broker(version)
    with JavaClients(brokers.WORK) as clients:
        around = Surroundings("topic-ids", brokers.WORK, clients)
        made = CaseContext(version, "topic-ids", tmp_path / "out", around)
        try:
            made.start({METADATA_WITH_LOGS: 1})
            for name in NAMES:
                made.create_topic(name, 1, CONFIGS)
                made.produce(name, made.batches([made.first_timestamp]))
            made.stop()
            logs = made.cluster.logs
            ids = {name: logs / f"{name}-0" / "partition.metadata" for name in NAMES}
            written = {name: path.read_bytes() for name, path in ids.items()}
            assert findings_of(logs) == {}

            ids["foreign"].write_text(f"version: 0\ntopic_id: {OTHER_ID}")
            ids["nameless"].unlink()
            shutil.rmtree(logs / "lost-0")
            assert findings_of(logs) == FINDINGS
            plan = kafkastore.plan_repair(logs)
            assert [each.path for each in plan.changes] == ["nameless-0/partition.metadata"]
            assert [each.path for each in plan.not_repaired] == [ids["foreign"]]
            kafkastore.apply(plan)
            with kafkastore.LogDirWriter(logs) as log_dir:
                writer = log_dir.writer("lost", 0)
                options = writer.config.to_options()
                assert {name: options[name] for name in CONFIGS} == {
                    name: str(value) for name, value in CONFIGS.items()
                }
                writer.append_records(new_records(5))
            for name in ("kept", "nameless", "lost"):
                assert ids[name].read_bytes() == written[name]

            made.start()
            for name in ("kept", "nameless", "lost"):
                made.ask(name)
            made.stop()
            strays = [path.name for path in logs.iterdir() if path.name.endswith("-stray")]
            assert [name.partition(".")[0] for name in strays] == ["foreign-0"]
            store = kafkastore.open(logs)
            ends = {name: store[name, 0].log_end_offset for name in NAMES}
            assert (ends["nameless"], ends["lost"]) == (ends["kept"], 5)
            assert ends["foreign"] == 0 < ends["kept"]  # it was created again
        finally:
            made.abandon()
            made.remove_run_directory()
