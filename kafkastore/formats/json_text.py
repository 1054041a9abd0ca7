"""JSON that somebody else may have written: bounded in size and in depth.

Plans, journals and saved steps lie in files that other users may be able to write.  A parser that
takes any depth ends in a RecursionError, one that takes any size in all the memory there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: A plan of 100,000 files has some 70 MB.
MAX_JSON_BYTES = 256 << 20
#: What this package writes has at most 7 levels.
MAX_JSON_DEPTH = 32


def parse_json(
    data: str | bytes, *, object_hook: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """Parse JSON of at most `MAX_JSON_BYTES` and `MAX_JSON_DEPTH`.

    Parameters
    ----------
    data : str or bytes
        The text; bytes are UTF-8.
    object_hook : callable, optional
        As of `json.loads`.

    Returns
    -------
    object
        JSON's own types, or what the hook makes of objects.

    Raises
    ------
    ValueError
        If it is no JSON, or too large, or too deep.

    Examples
    --------
    >>> parse_json('{"offsets": [1, 2]}')
    {'offsets': [1, 2]}
    """
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"JSON of {len(data)} bytes is larger than {MAX_JSON_BYTES}")
    try:
        value = json.loads(data, object_hook=object_hook)
    except RecursionError:
        raise ValueError(f"JSON is nested deeper than {MAX_JSON_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise ValueError(f"JSON is nested deeper than {MAX_JSON_DEPTH} levels")
