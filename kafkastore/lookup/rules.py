"""The rules of a lookup: ``correct``, ``kip-33``, or a Kafka version."""
from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from kafkastore.errors import ArgumentValueError, KafkaStoreError
from kafkastore.formats.requests.list_offsets import FIRST_VERSION_WITH_ISOLATION
from kafkastore.log.isolation import Isolation
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes
from kafkastore.versions import NEWEST_VERSION, BrokerRules, UnknownVersionError, rules_of

CORRECT = "correct"
KIP_33 = "kip-33"


class UnknownRulesError(KafkaStoreError, ArgumentValueError):
    """The rules are not ``correct``, ``kip-33`` or a Kafka version that the lookup can follow."""


class LookupChoice(NamedTuple):
    """The rules and options of a lookup; see `PartitionLog.offset_for_timestamp`.

    `indexes` only affects ``correct``; all other rules use the indexes as the broker does.
    `past_damage`: answer even if bytes are corrupt; for brokers and KIP-33 the segment ends there.
    """

    rules: str = CORRECT
    isolation: Isolation = "read_uncommitted"
    untimed: Literal["segment"] | None = None
    indexes: Indexes = DEFAULT_INDEXES
    past_damage: bool = False


@cache
def broker_rules(name: str) -> BrokerRules | None:
    """Return the rules of a Kafka version; None for ``correct`` and ``kip-33``."""
    if name in (CORRECT, KIP_33):
        return None
    try:
        rules = rules_of(name)
    except UnknownVersionError:
        rules = None
    if rules is None or not rules.has_time_indexes:
        raise UnknownRulesError(
            "rules",
            f"correct, kip-33 or a Kafka version from 0.10.1 to {NEWEST_VERSION} (older versions: "
            "kafkastore.legacy)",
            name,
        )
    return rules


def check_isolation_is_known(choice: LookupChoice, broker: BrokerRules | None) -> None:
    """Refuse ``read_committed`` for brokers that do not support it."""
    if broker is None or choice.isolation == "read_uncommitted":
        return
    if broker.list_offsets_versions[1] < FIRST_VERSION_WITH_ISOLATION:
        raise ArgumentValueError(
            "isolation", f"read_uncommitted for Kafka {choice.rules}", choice.isolation
        )
