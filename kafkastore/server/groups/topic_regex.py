"""Regular expressions of topics, matched by RE2 as in a broker: in linear time.

Source: Kafka 4.3.1 ``TopicRegexResolver``, which uses RE2/J.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkastore.errors import MissingExtraError
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.groups.group_error import MAX_REGEX_CHARACTERS, GroupRequestError


def check_regex(regex: str) -> None:
    """Refuse an expression that RE2 does not accept, or a very long one."""
    if len(regex) > MAX_REGEX_CHARACTERS:
        raise GroupRequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex is longer than {MAX_REGEX_CHARACTERS} characters.",
        )
    try:
        _find_matches(regex, [""])
    except MissingExtraError as error:
        raise GroupRequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"The server can't match topics: {error}."
        ) from error
    except ValueError as error:    # pyarrow.ArrowInvalid is one
        raise GroupRequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


def match_topics(regex: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that a checked expression matches as a whole."""
    names = list(topics)
    found = _find_matches(rf"\A(?:{regex})\z", names)
    return frozenset(name for name, is_match in zip(names, found, strict=True) if is_match)


def _find_matches(pattern: str, names: list[str]) -> list[bool]:
    """Return which texts have a match."""
    MissingExtraError.check("pyarrow", "serve")
    # Imported when it is needed: it is as large as the rest of the server.
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[bool] = pc.match_substring_regex(
        pa.array(names, pa.string()), pattern=pattern
    ).to_pylist()
    return found
