"""Query and change a producers' state by batches, in one line."""

import pytest
from models.producer_model import headers

from kafkastore import errors
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.versions import NEWEST


def replay(state, *batches):
    """Replay batches; the entries of the transaction index."""
    return state.replay(*headers(batches)).tolist()


def append(state, *batches, origin="client", **options):
    """Append batches together; the entries of the transaction index."""
    prepared = state.prepare(*headers(batches), origin=origin, **options)
    assert prepared.duplicate is None
    return state.update(prepared).tolist()


def refused(state, *batches, origin="client", **options):
    """Return the error for refused batches, which must not change the state."""
    before = state.entries().tolist(), state.first_unstable_offset
    with pytest.raises(errors.ProducerStateError) as error:
        state.prepare(*headers(batches), origin=origin, **options)
    assert (state.entries().tolist(), state.first_unstable_offset) == before
    return type(error.value)


def entry_of(state, producer_id=1):
    """One entry of the snapshot, by field."""
    entries = state.entries()
    entry = entries[entries["producer_id"] == producer_id][0]
    return dict(zip(PRODUCER_ENTRY.names, entry.tolist(), strict=True))


def reloaded(state, rules=NEWEST):
    """The state after it was packed and parsed as a snapshot."""
    return ProducerState(producer_snapshot.parse(producer_snapshot.pack(state.entries())),
                         rules=rules)
