"""Print text from others, such as a topic's name, safely on a terminal."""
from __future__ import annotations

from kafkastore.shown_text import escape_control_characters


def print_text(*lines: str) -> None:
    """Print lines to stdout with their control characters escaped."""
    for line in lines:
        print(escape_control_characters(line))
