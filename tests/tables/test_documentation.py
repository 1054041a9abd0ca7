"""The examples of docs/tables.md and of the README print what their comments say."""
from __future__ import annotations

import re
from pathlib import Path

from cli.examples import blocks_of, run_python

from kafkastore import samples

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_page_print_what_their_comments_say(tmp_path: Path) -> None:
    samples.unpack(tmp_path / "samples")
    blocks = [block for block in blocks_of(ROOT / "docs" / "tables.md")]
    text = "\n".join(block.text for block in blocks if block.language == "python")
    wanted = re.findall(r"^ *print\(.*\) +# (.*)$", text, re.MULTILINE)
    assert len(wanted) == text.count("print(")
    assert run_python(text, tmp_path).splitlines() == wanted


def test_the_example_of_the_readme_prints_what_its_comments_say(tmp_path: Path) -> None:
    samples.unpack(tmp_path / "samples")
    (block,) = (
        block for block in blocks_of(ROOT / "README.md")
        if block.language == "python" and "duckdb" in block.text
    )
    wanted = re.findall(r"^print\(.*\) +# (.*)$", block.text, re.MULTILINE)
    assert len(wanted) == block.text.count("print(")
    assert run_python(block.text, tmp_path).splitlines() == wanted
