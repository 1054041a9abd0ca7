"""Parse JSON from untrusted files, with limits on size and depth.

Other users may be able to write the files that hold plans, journals and saved steps. A parser
without limits ends in a RecursionError, or uses all memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: A plan of 100,000 files has about 70 MB.
MAX_JSON_BYTES = 256 << 20
#: Files that this package writes have at most 7 levels.
MAX_JSON_DEPTH = 32


def parse_json(
    data: str | bytes, *, object_hook: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """Parse JSON of at most `MAX_JSON_BYTES` and `MAX_JSON_DEPTH`; bytes are UTF-8.

    `object_hook` is that of `json.loads`. Raises ValueError for invalid JSON, or one that is too
    large or too deep.

    >>> parse_json('{"offsets": [1, 2]}')
    {'offsets': [1, 2]}
    """
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"JSON of {len(data)} bytes is larger than {MAX_JSON_BYTES}")
    try:
        value = json.loads(data, object_hook=object_hook)
    except RecursionError:
        raise ValueError(f"JSON is nested deeper than {MAX_JSON_DEPTH} levels") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise ValueError("a number in the JSON has too many digits") from None
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
