"""The examples of docs/tables.md print what their comments say."""
from __future__ import annotations

import re
from pathlib import Path

from cli.examples import blocks_of, run_python

from kafkastore import samples

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_page_print_what_their_comments_say(tmp_path: Path) -> None:
    samples.unpack(tmp_path / "samples")
    blocks = list(blocks_of(ROOT / "docs" / "tables.md"))
    text = "\n".join(block.text for block in blocks if block.language == "python")
    wanted = re.findall(r"^ *print\(.*\) +# (.*)$", text, re.MULTILINE)
    assert len(wanted) == text.count("print(")
    assert run_python(text, tmp_path).splitlines() == wanted
