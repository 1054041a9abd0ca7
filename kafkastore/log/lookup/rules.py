"""The names of rules: ``correct``, ``kip-33``, and every Kafka version with time indexes."""
from __future__ import annotations

from functools import cache

from kafkastore.errors import KafkaStoreError
from kafkastore.versions import BrokerRules, UnknownVersionError, rules_of

CORRECT = "correct"
KIP_33 = "kip-33"


class UnknownRulesError(KafkaStoreError, ValueError):
    """Rules that are neither ``correct`` nor ``kip-33`` nor a Kafka version with time indexes."""


@cache
def broker_rules(name: str) -> BrokerRules | None:
    """Find what a broker of a version does.

    Parameters
    ----------
    name : str
        ``"correct"``, ``"kip-33"``, or a Kafka version from 0.10.1 on.

    Returns
    -------
    BrokerRules or None
        None for the first two, which are no broker's.

    Raises
    ------
    UnknownRulesError
        If it is none of these.
    """
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
