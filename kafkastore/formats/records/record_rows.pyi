from collections.abc import Mapping
from typing import Any

class RecordRows:
    rows: int
    def __init__(self, rows: int, columns: Mapping[str, Any]) -> None: ...
