"""The names of rules: ``correct``, ``kip-33``, and every Kafka version with time indexes."""
from __future__ import annotations

from functools import cache

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.broker_rules import (
    BrokerRules,
    UnknownVersionError,
    parse_version,
    rules_of,
)

CORRECT = "correct"
KIP_33 = "kip-33"
FIRST_VERSION_WITH_TIME_INDEX = (0, 10, 1)


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
        version = parse_version(name)
    except UnknownVersionError as error:
        raise UnknownRulesError(
            f"rules {name!r} are not known: use correct, kip-33, or a Kafka version ({error})"
        ) from None
    if version < FIRST_VERSION_WITH_TIME_INDEX:
        raise UnknownRulesError(
            f"Kafka {name} has no time indexes; its answer is that of kafkastore.legacy"
        )
    return rules_of(name)
