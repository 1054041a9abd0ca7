"""Which rules a lookup follows: ``correct``, ``kip-33``, or a Kafka version with time indexes."""
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
    """Rules that are neither ``correct`` nor ``kip-33`` nor a Kafka version with time indexes."""


class LookupChoice(NamedTuple):
    """By which rules a log is searched.

    Parameters
    ----------
    rules : str
        ``"correct"``, ``"kip-33"``, or a Kafka version from 0.10.1 on.
    isolation : str
        ``"read_committed"``: nothing at or after the last stable offset, and under ``correct`` no
        record of an aborted transaction either.
    untimed : str or None
        ``"segment"``: a segment whose records have no timestamps is found as a whole.
    indexes : str
        How far ``correct`` trusts time indexes, see `LogSegment.search_by_time`; all other rules
        take them as the broker does.
    past_damage : bool
        Whether an answer is asked for where bytes are corrupt, too: by the rules of brokers and of
        KIP-33 the segment ends there.
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
    """Raise a ValueError where committed records are asked of brokers that know no isolation."""
    if broker is None or choice.isolation == "read_uncommitted":
        return
    if broker.list_offsets_versions[1] < FIRST_VERSION_WITH_ISOLATION:
        raise ValueError(
            f"brokers of {choice.rules} know no isolation; it came with Kafka 0.11"
        )
