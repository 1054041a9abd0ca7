"""The table of versions is in order, and docs/versions.md shows it."""
import doctest
from itertools import pairwise
from pathlib import Path

import pytest

from kafkastore import versions
from kafkastore.formats.requests.list_offsets import FIRST_VERSION_WITH
from kafkastore.formats.requests.list_offsets import NEWEST_VERSION as NEWEST_LIST_OFFSETS_VERSION
from kafkastore.versions import (
    NEWEST_VERSION,
    RULES,
    UnknownVersionError,
    parse_version,
    rules_of,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "versions.md"
TEXT = DOCUMENT.read_text()


def changed_to(change):
    reference = f" ({change.reference})" if change.reference else ""
    return f"{change.since}: `{change.value}`{reference}"


def row(name, rule):
    """The line of docs/versions.md about a rule."""
    values = "<br>".join([f"`{rule.first_value}`", *map(changed_to, rule.changes)])
    return f"| `{name}` | {rule.meaning} | {values} |"


def test_the_documented_table_is_that_of_the_code():
    documented = [line for line in TEXT.splitlines() if line.startswith("| `")]
    assert documented == [row(name, rule) for name, rule in RULES.items()]
    assert f"Kafka {NEWEST_VERSION}" in TEXT


def test_examples():
    for failed, tried in (
        doctest.testmod(versions), doctest.testfile(str(DOCUMENT), module_relative=False)
    ):
        assert tried
        assert not failed


@pytest.mark.parametrize("name", RULES)
def test_the_values_of_a_rule_are_sorted_by_version_and_change(name):
    rule = RULES[name]
    versions = [parse_version(change.since) for change in rule.changes]
    assert versions == sorted(set(versions))
    assert versions[-1] <= parse_version(NEWEST_VERSION)
    values = [rule.first_value, *(change.value for change in rule.changes)]
    assert all(value != earlier for earlier, value in pairwise(values))


def test_a_version_has_the_value_of_the_last_change_not_above_it():
    rule = RULES["each_batch_is_indexed"]
    versions = ("0.8", "3.9", "3.9.0", "3.9.1", "3.9.2", "4.0", "4.0.0", "4.0.1", "4.1")
    values = [rule.value_in(parse_version(version)) for version in versions]
    assert values == [False, False, False, True, True, False, False, True, True]
    assert [rules_of(version).each_batch_is_indexed for version in versions] == values


def test_a_major_version_alone_is_its_newest():
    assert parse_version("4") == parse_version(NEWEST_VERSION)
    assert rules_of("3") == rules_of("3.9.1")


@pytest.mark.parametrize(
    "text", ["4.4", "5", "10.0", "2.x", "2.", "", "-1", "0.8.2.2.1", "\u0662.\u0664", 2.4, None]
)
def test_a_text_that_is_not_a_known_version_is_refused(text):
    with pytest.raises(UnknownVersionError):
        rules_of(text)


@pytest.mark.parametrize(
    "version",
    [change.since for rule in (RULES["list_offsets_versions"], RULES["special_timestamps"])
     for change in rule.changes],
)
def test_special_timestamps_come_with_their_version_of_the_request(version):
    """A broker that knows a special timestamp speaks the version of the request that has it."""
    rules = rules_of(version)
    newest = rules.list_offsets_versions[1]
    assert set(rules.special_timestamps) == {
        special for special, first in FIRST_VERSION_WITH.items() if first <= newest
    }
    assert newest <= NEWEST_LIST_OFFSETS_VERSION
