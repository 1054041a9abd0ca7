"""The documents of the formats as data: their offset tables, and their examples run."""

import doctest
import re
from pathlib import Path

DOCUMENTS = Path(__file__).parents[2] / "docs" / "formats"


def offset_table(name):
    """The rows of a document's table `at | bytes | field`: ([(at, bytes, field), ...], end)."""
    text = (DOCUMENTS / f"{name}.md").read_text()
    fields = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", text, re.MULTILINE)
    (end,) = re.findall(r"^\| (\d+) \| \| \| end of ", text, re.MULTILINE)
    return [(int(at), int(size), field) for at, size, field in fields], int(end)


def run_examples(name):
    """Run a document's examples: (failed, run)."""
    path = DOCUMENTS / f"{name}.md"
    return doctest.testfile(str(path), module_relative=False, encoding="utf-8")
