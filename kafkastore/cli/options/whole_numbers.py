"""Options that are whole numbers."""
from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number from `min` to `max`, both inclusive."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the number, or fail in the words of all other errors."""
        try:
            return super().convert(value, param, context)
        except click.BadParameter:
            wanted = "an int" if self.min is None else f"an int of at least {self.min}"
            if self.max is not None:
                wanted = f"an int from {self.min} to {self.max}"
            self.fail(f"must be {wanted}, got {str(value)!r}", param, context)
