"""docs/list_offsets_answers.md: its examples, and its table of error codes."""

import doctest
import inspect
import re
from pathlib import Path

from kafkastore import samples
from kafkastore.server import ErrorCode, list_offsets, replica_lookup

DOCUMENT = Path(__file__).parents[2] / "docs" / "list_offsets_answers.md"


def test_the_examples_of_the_document_run(tmp_path, monkeypatch):
    samples.unpack(tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    text = DOCUMENT.read_text().replace("```", "\n")
    examples = doctest.DocTestParser().get_doctest(text, {}, DOCUMENT.name, None, 0)
    assert len(examples.examples) > 10
    result = doctest.DocTestRunner().run(examples)
    assert result.failed == 0


def test_the_document_has_every_error_code_of_these_answers():
    rows = re.findall(r"^\| (-?\d+) \| ([A-Z_]+) \|", DOCUMENT.read_text(), re.M)
    named = {(int(number), name) for number, name in rows}
    text = "".join(inspect.getsource(module) for module in (list_offsets, replica_lookup))
    codes = {ErrorCode[name] for name in re.findall(r"ErrorCode\.([A-Z_]+)\b", text)}
    assert named == {(code.value, code.name) for code in codes - {ErrorCode.NONE}}
