"""The option ``--rules``: the rules by which offsets are found."""
from __future__ import annotations

import click

from kafkastore.lookup.rules import CORRECT, KIP_33, LEGACY, UnknownRulesError, broker_rules
from kafkastore.shown_text import similar_names
from kafkastore.versions import NEWEST_VERSION

#: The rules of ``--rules all``, in historical order.
ALL_RULES = (LEGACY, KIP_33, NEWEST_VERSION, CORRECT)


def check_rules(name: str, others: str = "all, ") -> str:
    """Return the name of rules; raise click.BadParameter if it is unknown.

    `others` are names that the option takes too.
    """
    if name != "all":
        try:
            broker_rules(name)
        except UnknownRulesError as unknown:
            raise click.BadParameter(
                f"must be {others}{unknown.requirement}, got {name!r}{_hint_at_rules(name)}"
            ) from None
    return name


def _hint_at_rules(name: str) -> str:
    """Return which rules are probably meant, if that is clear."""
    number = name.strip().lower().removeprefix("kafka").removeprefix("-").removeprefix("v")
    for meant in (number, *similar_names(name, ALL_RULES)):
        if meant != name and (meant in ALL_RULES or _is_version(meant)):
            return f"; did you mean {meant}?"
    return ""


def _is_version(name: str) -> bool:
    try:
        return broker_rules(name) is not None
    except UnknownRulesError:
        return False
