"""Logs that become stray, or are not served, when a real broker starts, as predicted."""

import time

import pytest
from golden.make import brokers
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from golden.make.server_properties import METADATA_WITH_LOGS
from golden.make.wire import LATEST_TIMESTAMP, Wire
from models.seed import some

import kafkastore
from kafkastore.checks.predict import Outcome
from kafkastore.metadata.strays import StrayReason

pytestmark = pytest.mark.kafka

OTHER_ID = "2P-XnPKnTZG5NwujU8kn6Q"


def log_end(made, topic, seconds=30):
    """The log end that a broker answers; None if it answers an error for that long."""
    wire = Wire(int(made.cluster.address.rpartition(":")[2]))
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            answer = wire.list_offsets(topic, 0, LATEST_TIMESTAMP)
            if not answer["error"]:
                return answer["offset"]
            time.sleep(0.1)
    finally:
        wire.close()
    return None


@pytest.mark.parametrize("version", some(["3.9.1", "4.1.1", "4.3.1"], 1, __name__))
def test_a_broker_renames_the_logs_that_are_predicted(require_broker, tmp_path, version):
    require_broker(version)
    with JavaClients(brokers.WORK) as clients:
        around = Surroundings("strays", brokers.WORK, clients)
        made = CaseContext(version, "strays", tmp_path / "out", around)
        try:
            made.start({METADATA_WITH_LOGS: 1})
            for name in ("kept", "foreign", "nameless", "other"):
                made.create_topic(name)
                made.produce(name, made.batches([made.first_timestamp]))
            made.cluster.stop()
            logs = made.cluster.logs
            (logs / "foreign-0" / "partition.metadata").write_text(
                f"version: 0\ntopic_id: {OTHER_ID}"
            )
            (logs / "nameless-0" / "partition.metadata").unlink()
            other_id = (logs / "other-0" / "partition.metadata").read_text()
            kept_id = (logs / "kept-0" / "partition.metadata").read_text()
            (logs / "other-0" / "partition.metadata").write_text(kept_id)
            predicted = {
                each.path.name: (each.outcome, each.stray)
                for each in kafkastore.predict_start(logs, version)
                if each.topic_partition is not None
            }
            made.cluster.start()
            assert log_end(made, "other", seconds=3) is None
            made.cluster.stop()
            assert (logs / "other-0" / "partition.metadata").read_text() == kept_id
            (logs / "other-0" / "partition.metadata").write_text(other_id)
            made.cluster.start()
            served = {name: log_end(made, name) for name in ("kept", "foreign", "other")}
            made.cluster.stop()
            renamed = {
                path.name.partition(".")[0] for path in logs.iterdir()
                if path.name.endswith("-stray")
            }
        finally:
            made.abandon()
            made.remove_run_directory()
    assert {
        name for name, (outcome, _) in predicted.items() if outcome is Outcome.BECOMES_STRAY
    } == renamed == {"foreign-0", "nameless-0"}
    assert predicted["other-0"] == (Outcome.IS_NOT_SERVED, StrayReason.OTHER_TOPIC)
    assert predicted["kept-0"][1] is None
    assert served == {"kept": 1, "foreign": 0, "other": 1}
