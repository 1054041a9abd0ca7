"""The rules of a lookup: ``correct``, ``kip-33``, ``legacy``, or a Kafka version."""
from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from kafkastore.errors import ArgumentValueError, KafkaStoreError
from kafkastore.formats.requests.list_offsets import FIRST_VERSION_WITH_ISOLATION
from kafkastore.log.isolation import Isolation
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes
from kafkastore.versions import (
    NEWEST_VERSION,
    BrokerRules,
    UnknownVersionError,
    parse_version,
    rules_of,
)

CORRECT = "correct"
KIP_33 = "kip-33"
LEGACY = "legacy"

_FIRST_VERSION = (0, 8)


class UnknownRulesError(KafkaStoreError, ArgumentValueError):
    """The rules are unknown, or a Kafka version that the lookup cannot follow."""


class LookupChoice(NamedTuple):
    """The rules and options of a lookup; see `PartitionLog.offset_for_timestamp`.

    `indexes` only affects ``correct``; brokers and KIP-33 use the indexes as they are.
    `past_damage`: answer even if bytes are corrupt; except for `correct`, the segment ends there.
    """

    rules: str = CORRECT
    isolation: Isolation = "read_uncommitted"
    untimed: Literal["segment"] | None = None
    indexes: Indexes = DEFAULT_INDEXES
    past_damage: bool = False


@cache
def broker_rules(name: str) -> BrokerRules | None:
    """Return the rules of a Kafka version; None for rules that have no version."""
    if name in (CORRECT, KIP_33, LEGACY):
        return None
    try:
        rules = rules_of(name)
    except UnknownVersionError:
        rules = None
    if rules is None or not rules.has_time_indexes:
        raise UnknownRulesError(
            "rules",
            f"correct, kip-33, legacy or a Kafka version from 0.10.1 to {NEWEST_VERSION} (older "
            "versions: legacy)",
            name,
        )
    return rules


def check_isolation_is_known(choice: LookupChoice, broker: BrokerRules | None) -> None:
    """Refuse ``read_committed`` for rules that have no isolation levels."""
    if choice.isolation == "read_uncommitted":
        return
    if broker is None:
        has_isolation = choice.rules != LEGACY
    else:
        has_isolation = broker.list_offsets_versions[1] >= FIRST_VERSION_WITH_ISOLATION
    if not has_isolation:
        raise ArgumentValueError(
            "isolation", f"read_uncommitted for rules {choice.rules}", choice.isolation
        )


def legacy_rules(version: str) -> BrokerRules:
    """Return the rules of a version; raise if it does not support OffsetRequest v0."""
    try:
        parsed = parse_version(version)
    except UnknownVersionError:
        raise UnknownRulesError(
            "rules", "a Kafka version such as 0.8.2 or 2.4", version
        ) from None
    row = rules_of(version)
    if parsed < _FIRST_VERSION or row.list_offsets_versions[0] > 0:
        raise UnknownRulesError("rules", "a version with OffsetRequest v0: 0.8 to 3.9", version)
    return row
