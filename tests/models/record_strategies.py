"""Random batches and logs for hypothesis: small, with many odd properties."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import CODECS_OF, NONE, SNAPPY, Batch, Row, emptied, marker
from models.seed import examples

NOW = 1_500_000_000_000


def bounded(count):
    """Settings for this many examples in a full run."""
    return settings(
        max_examples=examples(count),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


TIMESTAMPS = st.one_of(
    st.integers(0, 30),
    st.integers(NOW, NOW + 1000),
    st.sampled_from([-1, 0, -2, -(2**63), 2**31, 2**62, 2**63 - 1, 253_402_300_800_000]),
)
#: Small ones and near each other, so that targets hit and miss by one.
NEAR_TIMESTAMPS = st.one_of(st.integers(0, 40), st.sampled_from([-1, -7, 0, 10**6]))
BYTES = st.one_of(st.none(), st.just(b""), st.binary(max_size=20), st.just(b"x" * 300))
NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple)
GAPS = st.sampled_from([0, 0, 0, 1, 5])


@st.composite
def rows(draw, *, count, has_headers, timestamps):
    """`count` rows from offset 0 on, with gaps."""
    found, offset = [], 0
    for _ in range(count):
        headers = draw(HEADERS) if has_headers else ()
        found.append(Row(offset, draw(timestamps), draw(BYTES), draw(BYTES), headers))
        offset += 1 + draw(GAPS)
    return tuple(found)


@st.composite
def batches(draw, *, magics=(0, 1, 2), timestamps=TIMESTAMPS, has_headers=True):
    """One batch that begins at offset 0."""
    magic = draw(st.sampled_from(magics))
    codec = draw(st.sampled_from(list(CODECS_OF[magic])))
    append_time = draw(st.one_of(st.none(), st.none(), timestamps)) if magic else None
    fields = {"magic": magic, "codec": codec, "append_time": append_time}
    if codec == SNAPPY:
        fields["is_raw_snappy"] = draw(st.booleans())
    if magic < 2:
        count = 1 if codec == NONE else draw(st.integers(1, 4))
        found = draw(rows(count=count, has_headers=False, timestamps=timestamps))
        if codec != NONE and magic == 1 and draw(st.integers(0, 9)) == 0:
            fields["inner_magic"] = 0
        return Batch(found, **fields)
    fields["leader_epoch"] = draw(st.sampled_from([-1, 0, 7]))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return marker(0, draw(timestamps), is_commit=draw(st.booleans()), append_time=append_time)
    if kind == 1:
        kept_until = draw(st.integers(0, 5))
        return emptied(0, kept_until, draw(timestamps), codec=codec, append_time=append_time)
    count = draw(st.integers(1, 5))
    found = draw(rows(count=count, has_headers=has_headers, timestamps=timestamps))
    if kind == 2:   # compacted: the first and last offset are kept though their records are removed
        found = tuple(row._replace(offset=row.offset + 2) for row in found)
        fields |= {"first_offset": 0, "last_offset_kept": found[-1].offset + 3}
        fields["delete_horizon"] = draw(st.one_of(st.none(), TIMESTAMPS))
    if kind == 3:
        fields |= {"producer_id": 2**62, "producer_epoch": 3, "base_sequence": 2**31 - 1}
        fields["is_transactional"] = draw(st.booleans())
    return Batch(found, **fields)


def in_a_row(written, first_offset=0):
    """Batches, each moved after the one before."""
    moved, offset = [], first_offset
    for batch in written:
        moved.append(batch.with_offset(offset))
        offset = moved[-1].last_offset + 1
    return moved


#: States of a segment's indexes; the log is right in all of them.
INDEX_STATES = (
    "closed", "lacks the last entry", "padded", "empty", "missing", "recovered", "rebuilt",
    "no offset index", "no time index", "empty time index",
)


@st.composite
def segments(draw, *, first_offset, magics, states=INDEX_STATES, has_headers=False):
    """One segment, with indexes as leaders, followers, recoveries and accidents leave them."""
    found = draw(
        st.lists(
            batches(magics=magics, timestamps=NEAR_TIMESTAMPS, has_headers=has_headers),
            max_size=8,
        )
    )
    found = in_a_row(found, first_offset + draw(GAPS))
    segment = Segment(first_offset, tuple(found), modified_ms=draw(st.integers(0, 45)))
    state = draw(st.sampled_from(states))
    style = {
        "interval": draw(st.sampled_from([0, 60, 150, 4096])),
        "batches_a_set": draw(st.integers(1, 3)),
        "is_exact": draw(st.booleans()),
        "stores_first_offset": draw(st.booleans()),
        "is_closed": state != "lacks the last entry",
    }
    if state == "rebuilt":
        style["from_batch"] = draw(st.integers(0, len(found)))
    if state == "recovered":
        segment = segment.recovered(style["interval"])
    elif state not in ("empty", "missing"):
        segment = segment.indexed(**style)
    changes = {
        "padded": {
            "offset_index": segment.offset_index + bytes(8 * draw(st.integers(1, 20))),
            "time_index": segment.time_index + bytes(12 * draw(st.integers(1, 20))),
        },
        "missing": {"offset_index": None, "time_index": None},
        "no offset index": {"offset_index": None},
        "no time index": {"time_index": None},
        "empty time index": {"time_index": b""},
    }
    return replace(segment, **changes.get(state, {}))


@st.composite
def logs(draw, *, magics=None, states=INDEX_STATES, has_headers=False):
    """A log of up to four segments; magics rise, as upgrades make them."""
    if magics is None:
        magics = draw(st.sampled_from([(0,), (1,), (2,), (2,), (0, 1), (1, 2), (0, 1, 2)]))
    found, offset = [], draw(st.sampled_from([0, 0, 100]))
    for _ in range(draw(st.integers(1, 4))):
        segment = draw(
            segments(
                first_offset=offset, magics=magics, states=states, has_headers=has_headers
            )
        )
        found.append(segment)
        ends = [batch.last_offset + 1 for batch in segment.batches]
        offset = max([offset + 1, *ends]) + draw(GAPS)
    checkpointed_start = draw(st.one_of(st.none(), st.integers(0, offset + 2)))
    recovery_point = draw(st.one_of(st.none(), st.integers(0, offset)))
    return Log(tuple(found), draw(st.booleans()), checkpointed_start, recovery_point)
