"""The rules of a lookup: ``correct``, ``kip-33``, or a Kafka version."""
from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.list_offsets import FIRST_VERSION_WITH_ISOLATION
from kafkastore.log.isolation import Isolation
from kafkastore.segment.checked_times import DEFAULT_INDEXES, Indexes
from kafkastore.versions import BrokerRules, UnknownVersionError, rules_of

CORRECT = "correct"
KIP_33 = "kip-33"


class UnknownRulesError(KafkaStoreError, ValueError):
    """The rules are not ``correct``, ``kip-33`` or a Kafka version with time indexes."""


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
    except UnknownVersionError as error:
        raise UnknownRulesError(
            f"rules {name!r} are not known: use correct, kip-33, or a Kafka version ({error})"
        ) from None
    if not rules.has_time_indexes:
        raise UnknownRulesError(
            f"Kafka {name} has no time indexes; its answer is that of kafkastore.legacy"
        )
    return rules


def check_isolation_is_known(choice: LookupChoice, broker: BrokerRules | None) -> None:
    """Raise a ValueError for ``read_committed`` with brokers that do not support it."""
    if broker is None or choice.isolation == "read_uncommitted":
        return
    if broker.list_offsets_versions[1] < FIRST_VERSION_WITH_ISOLATION:
        raise ValueError(
            f"brokers of {choice.rules} know no isolation; it came with Kafka 0.11"
        )
