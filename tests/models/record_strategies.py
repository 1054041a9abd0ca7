"""Batches and logs by chance, for hypothesis: small, and rich in what is odd."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from models.record_format import CODECS_OF, NONE, SNAPPY, Batch, Row, emptied, marker

NOW = 1_500_000_000_000


def bounded(examples):
    """The same examples in every run, and no more of them than that."""
    return settings(
        max_examples=examples,
        derandomize=True,
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
    found = draw(rows(count=draw(st.integers(1, 5)), has_headers=has_headers, timestamps=timestamps))
    if kind == 2:   # compacted: the first and last offset are kept though their records are gone
        found = tuple(row._replace(offset=row.offset + 2) for row in found)
        fields |= {"first_offset": 0, "last_offset_kept": found[-1].offset + 3}
        fields["delete_horizon"] = draw(st.one_of(st.none(), TIMESTAMPS))
    if kind == 3:
        fields |= {"producer_id": 2**62, "producer_epoch": 3, "base_sequence": 2**31 - 1}
        fields["is_transactional"] = draw(st.booleans())
    return Batch(found, **fields)
