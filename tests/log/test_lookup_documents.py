"""docs/lookups.md says of versions what the code's table says."""

import ast
import re
from pathlib import Path

import pytest

from kafkastore.formats.broker_rules import rules_of
from kafkastore.formats.list_offsets import FIRST_VERSION_WITH, NEWEST_VERSION

TEXT = (Path(__file__).parents[2] / "docs" / "lookups.md").read_text()
ROW = re.compile(r"^\| (?:`(\w+)`)? ?\| ([\d.]+) \| `([^`]+)` \|$", re.M)
# The versions that a change may come with, in order.
RELEASES = [
    "0.10.1", "0.10.2", "0.11", "0.11.0.1", "1.0", "1.1", *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)), *(f"4.{minor}" for minor in range(3)),
]

# Also of use here, and documented where logs are written and loaded.
OF_LOADING = {
    "indexes_checked_on_load", "segments_know_earlier_producers", "time_index_has_record_offset",
}


def documented():
    """{field: [(since, value)]}."""
    found, field = {}, None
    for name, since, value in ROW.findall(TEXT):
        field = name or field
        found.setdefault(field, []).append((since, ast.literal_eval(value)))
    return found


@pytest.mark.parametrize("field", documented())
def test_each_difference_comes_with_the_documented_version(field):
    changes = documented()[field]
    value = getattr(rules_of("0.10.1"), field)
    told = []
    for release in RELEASES:
        now = getattr(rules_of(release), field)
        if now != value or (release == "0.10.1" and isinstance(now, tuple)):
            told.append((release, now))
        value = now
    assert told == changes


def test_every_field_of_lookups_is_documented():
    names = " ".join(
        path.read_text()
        for path in (Path(__file__).parents[2] / "kafkastore" / "lookup").glob("*.py")
    )
    used = {field for field in rules_of("2.4")._fields if re.search(rf"\.{field}\b", names)}
    assert used - OF_LOADING == set(documented())


def test_special_timestamps_come_with_their_version_of_the_request():
    """A broker that knows a special timestamp speaks the version of the request that has it."""
    for release in RELEASES:
        rules = rules_of(release)
        newest = rules.list_offsets_versions[1]
        # -6 is in the request of 4.2, and -3 to -5 in those that came with them.
        assert set(rules.special_timestamps) == {
            special for special, version in FIRST_VERSION_WITH.items() if version <= newest
        }
        assert newest <= NEWEST_VERSION
