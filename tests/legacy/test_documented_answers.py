"""The statements and examples of docs/legacy.md are true."""
import doctest
from importlib import import_module
from pathlib import Path

import pytest
from cli.examples import blocks_of, commands_of, run_command
from kafkastore.legacy import mtimes

from kafkastore import samples, time_axes

offsets_before = import_module("kafkastore.lookup.offsets_before")

DOCUMENT = Path(__file__).parents[2] / "docs" / "legacy.md"


def test_the_examples_of_the_document_are_true(tmp_path, monkeypatch):
    samples.unpack(tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(DOCUMENT)
    consoles = [block for block in blocks if block.language == "console"]
    commands = [command for block in consoles for command in commands_of(block)]
    assert len(commands) == 2
    for command in commands:
        run_command(command, tmp_path)
    text = "\n".join(block.text for block in blocks if block.language == "python")
    example = doctest.DocTestParser().get_doctest(text, {}, "legacy.md", None, 0)
    assert len(example.examples) == 12
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize(("module", "count"), [(offsets_before, 9), (mtimes, 1), (time_axes, 1)])
def test_the_examples_of_docstrings_are_true(module, count):
    assert doctest.testmod(module) == (0, count)
