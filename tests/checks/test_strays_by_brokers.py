"""Logs that become stray when a real broker starts, as predicted."""

import pytest
from golden.make import brokers
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from golden.make.server_properties import METADATA_WITH_LOGS
from models.seed import some

import kafkastore

pytestmark = pytest.mark.kafka

OTHER_ID = "2P-XnPKnTZG5NwujU8kn6Q"


@pytest.mark.parametrize("version", some(["3.9.1", "4.3.1"], 1, __name__))
def test_a_broker_renames_the_logs_that_are_predicted(require_broker, tmp_path, version):
    require_broker(version)
    with JavaClients(brokers.WORK) as clients:
        around = Surroundings("strays", brokers.WORK, clients)
        made = CaseContext(version, "strays", tmp_path / "out", around)
        try:
            made.start({METADATA_WITH_LOGS: 1})
            for name in ("kept", "foreign", "nameless"):
                made.create_topic(name)
                made.produce(name, made.batches([made.first_timestamp]))
            made.cluster.stop()
            logs = made.cluster.logs
            (logs / "foreign-0" / "partition.metadata").write_text(
                f"version: 0\ntopic_id: {OTHER_ID}"
            )
            (logs / "nameless-0" / "partition.metadata").unlink()
            predicted = {
                each.path.name: each.stray
                for each in kafkastore.predict_start(logs, version)
                if each.topic_partition is not None
            }
            made.cluster.start()
            made.cluster.stop()
            renamed = {
                path.name.partition(".")[0] for path in logs.iterdir()
                if path.name.endswith("-stray")
            }
        finally:
            made.abandon()
            made.remove_run_directory()
    assert {name for name, stray in predicted.items() if stray is not None} == renamed
    assert renamed == {"foreign-0", "nameless-0"}
