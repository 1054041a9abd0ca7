"""No decision depends on the text of an error or of a reason, only on types, enums and fields.

Tests expect types and fields too; the files of `WITH_TEXTS` have the texts.
"""
import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

#: Yields lines of a source, and the findings there.
Search = Callable[[str], Iterator[tuple[int, str]]]

FOLDERS = ("kafkastore", "legacy", "migration")

#: Names and fields that hold sentences.
SENTENCES = {
    "reason", "why", "message", "sentence", "strerror", "problem", "what", "basis", "consequence",
    "fault",
}
ERRORS = {"error", "exception", "failure", "raised", "corrupt", "cause", "exc", "err"}
#: Errors that pytest has caught.
RAISED = {"caught.value", "raised.value", "refused.value", "refusal.value"}
TO_TEXT = {"str", "repr", "sentence"}
SEARCHES = {
    "startswith", "endswith", "replace", "find", "rfind", "index", "rindex", "count", "partition",
    "rpartition", "split", "rsplit", "splitlines", "removeprefix", "removesuffix",
}
PATTERNS = {"match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"}


class Reader(ast.NodeVisitor):
    """Finds where the text of an error is compared, searched or replaced."""

    def __init__(self) -> None:
        self.errors = set(ERRORS)
        self.found: list[ast.AST] = []

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.errors.add(node.name)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        by_text = (ast.In, ast.NotIn, ast.Eq, ast.NotEq)
        sides = [node.left, *node.comparators]
        are_texts = {*map(self.is_text, sides)}
        # Two sentences may be compared, to print equal ones once.
        if any(isinstance(each, by_text) for each in node.ops) and are_texts == {True, False}:
            self.found.append(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            is_search = node.func.attr in SEARCHES and self.is_text(node.func.value)
            # Without an argument, the text is put on one line.
            is_search = is_search and bool(node.args or node.func.attr != "split")
            if is_search or (node.func.attr in PATTERNS and any(map(self.is_text, node.args))):
                self.found.append(node)
        self.generic_visit(node)

    def is_text(self, node: ast.AST) -> bool:
        """Whether this is a sentence, judging by its name."""
        if isinstance(node, ast.Subscript):
            node = node.value
            return isinstance(node, ast.Attribute) and node.attr == "args"
        if isinstance(node, ast.Name):
            return node.id in SENTENCES
        if isinstance(node, ast.Attribute):
            return node.attr in SENTENCES
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            argument = node.args[0]
            is_error = isinstance(argument, ast.Name) and argument.id in self.errors
            is_error = is_error or ast.unparse(argument) in RAISED
            return node.func.id in TO_TEXT and is_error
        return False


def decisions(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each decision by a sentence."""
    reader = Reader()
    reader.visit(ast.parse(source))
    for node in reader.found:
        yield node.lineno, ast.unparse(node)


def found_in(root: Path, folders: Iterable[str], *searches: Search) -> list[str]:
    """Name each place that a search finds, outside the files of texts."""
    return [
        f"{path.relative_to(root)}:{line}: {text}"
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if str(path.relative_to(root)) not in WITH_TEXTS
        for search in searches
        for line, text in search(path.read_text())
    ]


def test_nothing_is_decided_by_a_sentence(pytestconfig):
    assert found_in(pytestconfig.rootpath, FOLDERS, decisions) == []


@pytest.mark.parametrize("text", [
    "'once more' in str(error)",
    "'once more' in skipped.reason",
    "reason.startswith('left of')",
    "str(error).replace('a', 'b')",
    "error.args[0] == 'no'",
    "each.reason == UNREAD",
    "'once more' in finding.what",
    "re.search('no', str(error))",
    "re.sub('[0-9]+', '#', change.reason)",
    "str(error).split(':')[0]",
    "try:\n    f()\nexcept OSError as odd:\n    odd.strerror == 'gone' or 'no' in str(odd)",
])
def test_a_decision_by_a_sentence_is_found(text):
    assert list(decisions(text))


@pytest.mark.parametrize("text", [
    "str(path) in STDOUT",
    "each.reason is LeftReason.UNREAD",
    "reason is None",
    "each.what == first.what",
    "error.errno == 2",
    "f'{error}; try again'",
    "' '.join(str(error).split())",
    "isinstance(reason, LeftOver)",
])
def test_other_comparisons_are_free(text):
    assert not list(decisions(text))


#: The texts for their own sake.
WITH_TEXTS = {
    "tests/test_error_texts.py",
    "tests/test_reason_texts.py",
    "tests/checks/test_finding_texts.py",
    "tests/cli/test_texts_of_times.py",
}


def expected_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the pattern of each ``pytest.raises(match=...)`` that expects a text.

    A pattern of one word, such as a file's name, is not a text. Patterns in variables are.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "pytest.raises":
            continue
        for keyword in node.keywords:
            pattern = keyword.value
            if keyword.arg != "match":
                continue
            if not isinstance(pattern, ast.Constant) or " " in str(pattern.value):
                yield node.lineno, ast.unparse(pattern)


def pinned_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comparison of a sentence with words."""
    reader = Reader()
    reader.visit(ast.parse(source))
    for node in reader.found:
        literals = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
        if any(isinstance(each.value, str) and len(each.value.split()) > 1 for each in literals):
            yield node.lineno, ast.unparse(node)


def test_tests_expect_types_and_fields(pytestconfig):
    assert found_in(pytestconfig.rootpath, ["tests"], expected_texts, pinned_texts) == []


@pytest.mark.parametrize("text", ["'not a file'", "f'{path} is gone'", "message", "rf'{name}'"])
def test_an_expected_text_is_found(text):
    assert list(expected_texts(f"with pytest.raises(ValueError, match={text}):\n    f()"))


@pytest.mark.parametrize("text", ["match='three'", "match=r'max\\.message\\.bytes'", ""])
def test_an_expected_word_is_none(text):
    assert not list(expected_texts(f"with pytest.raises(ValueError, {text}):\n    f()"))


@pytest.mark.parametrize("text", [
    "assert 'is gone' in str(caught.value)",
    "assert f'{path} is gone' in str(error)",
    "assert note.reason == 'it is gone'",
    "assert found.what.endswith(f'{count} are lost')",
])
def test_a_pinned_text_is_found(text):
    assert list(pinned_texts(text))


@pytest.mark.parametrize("text", [
    "assert str(path) in str(caught.value)",
    "assert 'a.log' in str(error)",
    "assert note.reason is None",
    "assert note.kind == 'is-gone'",
])
def test_a_name_in_a_text_is_none(text):
    assert not list(pinned_texts(text))
