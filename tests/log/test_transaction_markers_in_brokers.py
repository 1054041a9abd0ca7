"""Leaders accept and refuse transaction markers as our writer does, by version of the broker."""

import pytest
from golden.make.load_into_broker import broker_on
from golden.make.wire import WRITE_TXN_MARKERS

import kafkastore
from kafkastore.errors import InvalidProducerEpochError
from kafkastore.formats.records.record_builder import build_end_transaction_marker
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import FIRST_TIMESTAMP, new_records

pytestmark = pytest.mark.kafka

NONE, INVALID_PRODUCER_EPOCH = 0, 47  # Kafka's error codes
LAST_EPOCH = 2**15 - 1
# By partition: the epoch of an open transaction, and the epoch and the transaction version of each
# marker that is then sent; `kafka-transactions.sh abort` sends version 0.
MARKERS = {
    0: (3, [(2, 2), (3, 2), (3, 2), (4, 2)]),
    1: (LAST_EPOCH, [(LAST_EPOCH - 1, 2), (LAST_EPOCH, 2), (LAST_EPOCH, 2)]),
    2: (LAST_EPOCH, [(LAST_EPOCH, 2), (LAST_EPOCH, 0)]),
}


def answer_of(writer, epoch, transaction_version):
    """Append a marker; the error code."""
    marker = build_end_transaction_marker(
        0, FIRST_TIMESTAMP, 5, epoch, is_commit=True, coordinator_epoch=0
    )
    try:
        writer.append(marker, transaction_version=transaction_version)
    except InvalidProducerEpochError:
        return INVALID_PRODUCER_EPOCH
    return NONE


@pytest.mark.parametrize("version", ["4.2.2", "4.3.1"])
def test_a_leader_answers_markers_as_our_writer_does(require_broker, tmp_path, version):
    """In 4.2.2 no coordinator ends a transaction of version 2 that has the last epoch."""
    require_broker(version)
    root, out = tmp_path / "before", tmp_path / "out"
    with LogDirWriter(root, version) as log_dir:
        for partition, (epoch, _) in MARKERS.items():
            log_dir.writer("t", partition).append_records(
                new_records(4), producer_id=5, producer_epoch=epoch, base_sequence=0,
                is_transactional=True,
            )
    theirs, stable = [], []
    with broker_on([root / f"t-{partition}" for partition in MARKERS], version, out) as context:
        wire = context.cluster.wire
        assert context.cluster.api_versions[WRITE_TXN_MARKERS][1] == 2
        for partition, (_, markers) in MARKERS.items():
            theirs += [
                wire.write_txn_marker(
                    "t", partition, 5, epoch, version=2, transaction_version=transaction_version
                )
                for epoch, transaction_version in markers
            ]
            stable.append(wire.watermarks("t", partition, 0).last_stable_offset)
        context.stop()
        context.save(dump=False)
    ours = []
    with LogDirWriter(root, version) as log_dir:
        for partition, (_, markers) in MARKERS.items():
            writer = log_dir.writer("t", partition)
            ours += [answer_of(writer, *marker) for marker in markers]
    assert ours == theirs
    for logs in (root, out / "logs"):
        found = [kafkastore.open(logs)["t", partition] for partition in MARKERS]
        assert [log.last_stable_offset for log in found] == stable
    assert (stable[1] == 0) == (version == "4.2.2")
