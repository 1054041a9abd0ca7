"""Changes of the same file are undone in reverse order."""

from time import sleep

import pytest
from changes.small_store import change, contents
from models.refused import change_refused

from kafkastore.changes.apply import apply
from kafkastore.changes.plan import Inline, Plan
from kafkastore.changes.undo import undo


@pytest.mark.parametrize("original", [None, b"first"], ids=["missing", "back to its first bytes"])
def test_a_file_that_a_later_change_keeps_must_be_undone_there_first(root, original):
    path = "orders-0/00000000000000000000.timeindex"
    if original is not None:
        (root / path).write_bytes(original)
    before = contents(root)
    first = apply(Plan(str(root), "there", (change(root, path, Inline(b"new"), b"new"),)))
    changed = contents(root)
    sleep(0.002)  # the time of a change is recorded in ms
    content = None if original is None else Inline(original)
    second = apply(Plan(str(root), "back", (change(root, path, content, original),)))
    with change_refused("changed", root / path):
        undo(first)
    assert undo(first, leave_changed=True).left == {path}
    undo(second)
    assert contents(root) == changed
    undo(first)
    assert contents(root) == before


def test_an_area_with_another_name_is_undone_if_a_created_file_is_missing(root):
    path = "orders-0/00000000000000000000.timeindex"
    before = contents(root)
    journal = apply(Plan(str(root), "create", (change(root, path, Inline(b"new"), b"new"),)))
    (root / path).unlink()
    renamed = journal.area.rename(journal.area.with_name("saved"))
    assert undo(renamed, root=root).phase == "undone"
    assert contents(root) == before
