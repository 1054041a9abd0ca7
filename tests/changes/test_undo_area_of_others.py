"""Undo areas that another user may have written, while root runs `undo`.

Each test writes what an attacker would, and checks that the attack has no effect.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from changes.faults import Crash, CrashingFileSystem, count_calls
from changes.small_store import change, contents, write
from models.refused import change_refused
from models.unprivileged import give_to_nobody

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import (
    UnreadableArea,
    find_journals,
    find_unfinished,
    open_journals,
    remove,
)
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Inline, InvalidPlanError, Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem

PATH = "orders-0/00000000000000000000.index"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def rewrite(area: Path, alter: Callable[[dict[str, Any]], None]) -> None:
    """Change the plan in an undo area as an attacker would."""
    value = json.loads((area / "plan.json").read_bytes())
    alter(value)
    (area / "plan.json").write_text(json.dumps(value))


def interrupted(plan: Plan) -> Path:
    """Apply half of a plan."""
    calls = count_calls(lambda fs: undo(apply(plan, threads=1, fs=fs)))
    with pytest.raises(Crash):
        apply(plan, threads=1, fs=CrashingFileSystem(calls // 4))
    (journal,) = find_journals(plan.root)
    assert journal.phase == "applying"
    return journal.area


@pytest.fixture
def elsewhere(root: Path) -> Path:
    """Return another directory with the same files."""
    copy = root.parent / "elsewhere" / "kafka-logs-1"
    for path, (data, mtime_ns, _) in contents(root).items():
        write(copy / path, data, mtime_ns)
    return copy


@pytest.mark.parametrize("verb", [undo, resume])
def test_the_root_named_in_a_plan_is_ignored(
    root: Path, plan: Plan, elsewhere: Path, verb: Callable[..., Journal]
) -> None:
    area = apply(plan).area if verb is undo else interrupted(plan)
    before, there = contents(root), contents(elsewhere)
    rewrite(area, lambda value: value.update(root=str(elsewhere)))
    with change_refused("unknown-area", area):
        verb(area)
    assert (contents(root), contents(elsewhere)) == (before, there)


def test_undo_changes_the_root_that_the_caller_names(root: Path, plan: Plan) -> None:
    before = contents(root)
    journal = apply(plan, root.parent.parent)
    area = Path(journal.area)
    with change_refused("unknown-area", area):
        undo(area)
    moved = root.rename(root.with_name("mounted-elsewhere"))
    assert undo(area, root=moved).phase == "undone"
    assert contents(moved) == before


@pytest.mark.parametrize(
    "path",
    [
        "../kafka-logs-1/orders-0/00000000000000000000.log",
        "/etc/passwd",
        "cron.d/evil",
        "orders-0/../../passwd",
        "orders-0/evil",
        "orders-0/inner-0/00000000000000000000.log",
        "meta.properties",
        "passwd",
        "orders-0/00000000000000000000.log\0",
        "orders-0/\ud800.deleted",
    ],
)
def test_a_plan_only_names_paths_of_kafka_s_partition_files(
    root: Path, plan: Plan, path: str
) -> None:
    area = apply(plan).area
    before = contents(root)
    rewrite(area, lambda value: value["changes"][0].update(path=path))
    with pytest.raises(InvalidPlanError):
        undo(area)
    assert contents(root) == before


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o100644])
def test_a_plan_can_set_only_permission_bits(
    root: Path, plan: Plan, mode: int
) -> None:
    area = interrupted(plan)
    rewrite(area, lambda value: value["changes"][-3]["after"].update(mode=mode))
    with pytest.raises(InvalidPlanError) as refusal:
        resume(area)
    assert refusal.value.path == area / "plan.json"


@pytest.mark.parametrize("given", [{"mode": 0o777}, {"user": 4711}, {"group": 4711}])
def test_a_file_only_gets_owners_and_mode_of_a_file_next_to_it(
    root: Path, plan: Plan, given: dict[str, int]
) -> None:
    area = interrupted(plan)
    before = contents(root)
    rewrite(area, lambda value: [each["after"] and each["after"].update(given)
                                 for each in value["changes"]])
    with change_refused("file-access"):
        resume(area)
    assert contents(root) == before


def test_a_file_loses_setuid_when_it_is_replaced(root: Path) -> None:
    path = root / PATH
    path.chmod(0o6755)
    apply(Plan(str(root), "test", (change(root, PATH, Inline(b"new"), b"new"),)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"changes": ' + "[" * 200_000, "[" * 500 + "]" * 500]
)
@pytest.mark.parametrize("name", ["plan.json", "journal.jsonl"])
def test_json_nested_too_deep_is_refused_in_one_sentence(
    root: Path, plan: Plan, name: str, text: str
) -> None:
    area = apply(plan).area
    (area / name).write_text(text)
    if name == "plan.json":
        with pytest.raises(InvalidPlanError) as refusal:
            undo(area)
        assert refusal.value.path == area / name
        assert refusal.value.__cause__ is not None
        assert type(refusal.value.__cause__.__cause__) is ValueError  # not an error of json
    else:
        assert Journal.open(area).phase == "applying"


def test_a_plan_that_is_too_large_is_not_read(root: Path, plan: Plan) -> None:
    area = apply(plan).area
    os.truncate(area / "plan.json", 1 << 40)
    with pytest.raises(InvalidPlanError) as refusal:
        undo(area)
    assert refusal.value.path == area / "plan.json"
    assert type(refusal.value.__cause__) is ValueError


@needs_root
@pytest.mark.parametrize("verb", [undo, remove])
def test_an_area_of_another_user_is_only_used_with_trust_area(
    root: Path, plan: Plan, verb: Callable[..., object]
) -> None:
    planned_before = contents(root)
    area = apply(plan).area
    applied = contents(root)
    give_to_nobody(area)
    with change_refused("untrusted-area"):
        verb(area)
    assert contents(root) == applied
    verb(area, trust_area=True)
    assert contents(root) == (planned_before if verb is undo else applied)


@pytest.mark.parametrize("inner", ["", "plan.json", "journal.jsonl", "kept", "kept/orders-0"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_an_area_that_others_may_write_to_is_only_used_with_trust_area(
    root: Path, plan: Plan, inner: str, mode: int
) -> None:
    before = contents(root)
    area = apply(plan).area
    path = area / inner
    path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)
    with change_refused("untrusted-area", path):
        undo(area)
    undo(area, trust_area=True)
    assert contents(root) == before


def test_an_area_is_writable_only_by_its_owner_whatever_the_umask(root: Path, plan: Plan) -> None:
    old = os.umask(0)
    try:
        area = apply(plan).area
    finally:
        os.umask(old)
    undo(area)


@needs_root
def test_an_area_that_existed_before_is_not_written_to(root: Path, plan: Plan) -> None:
    area = apply(plan).area
    remove(undo(area))
    area.mkdir()
    (area / "plan.json").write_text(plan.to_json())
    give_to_nobody(area)
    before = contents(root)
    with change_refused("untrusted-area"):
        apply(plan)
    assert contents(root) == before


def link_to(path: Path, target: Path) -> None:
    """Move a directory away, and put a symbolic link in its place."""
    path.rename(path.with_name(path.name + ".moved"))
    path.symlink_to(target)


@pytest.mark.parametrize("verb", ["apply", "undo", "resume"])
def test_a_partition_directory_that_became_a_link_is_refused(
    root: Path, plan: Plan, elsewhere: Path, verb: str
) -> None:
    work: Callable[[], object] = partial(apply, plan)
    if verb == "undo":
        work = partial(undo, apply(plan))
    elif verb == "resume":
        work = partial(resume, interrupted(plan))
    link_to(root / "orders-1", elsewhere / "orders-1")
    before, there = contents(root), contents(elsewhere)
    with change_refused("not-a-directory", root / "orders-1"):
        work()
    assert (contents(root), contents(elsewhere)) == (before, there)


class SwappedBefore(FileSystem):
    """A file system on which a directory becomes a link just before one call."""

    def __init__(self, name: str, swap: Callable[[], None]) -> None:
        self._name, self._swap = name, swap
        self.happened = False

    def _at(self, name: str) -> None:
        if name == self._name and not self.happened:
            self.happened = True
            self._swap()

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        if path.suffix == ".new" and path.name.startswith("kafkastore-"):
            self._at("create")
        return super().create(path, mode, **where)

    def link(self, source: Path, target: Path, **where: Any) -> None:
        if where:
            self._at("link")
        super().link(source, target, **where)

    def rename(self, source: Path, target: Path, **where: Any) -> None:
        if where:
            self._at("rename")
        super().rename(source, target, **where)

    def unlink(self, path: Path, **where: Any) -> None:
        if where:
            self._at("unlink")
        super().unlink(path, **where)


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        (apply, "create"),
        (apply, "link"),
        (apply, "rename"),
        (apply, "unlink"),
        (undo, "link"),
        (undo, "rename"),
        (undo, "unlink"),
    ],
)
def test_a_link_that_appears_at_any_call_is_not_followed(
    root: Path, plan: Plan, elsewhere: Path, call: str, verb: Callable[..., Journal]
) -> None:
    """Only the directory that was checked is altered, or nothing."""
    journal = apply(plan) if verb is undo else None
    there = contents(elsewhere)
    fs = SwappedBefore(call, lambda: link_to(root / "orders-0", elsewhere / "orders-0"))
    with suppress(ChangeRefusedError):  # not raised if nothing more is done in that directory
        verb(plan if journal is None else journal, threads=1, fs=fs)
    assert fs.happened
    assert contents(elsewhere) == there


def test_a_kept_directory_that_is_a_link_is_neither_written_nor_removed(
    root: Path, plan: Plan, elsewhere: Path
) -> None:
    area = apply(plan).area
    there = contents(elsewhere)
    link_to(area / "kept", elsewhere)
    for verb in (undo, remove):
        with change_refused("not-a-directory", area / "kept"):
            verb(area, trust_area=True)
    assert contents(elsewhere) == there


def test_remove_accepts_only_undo_areas_and_does_not_follow_links(
    root: Path, plan: Plan, elsewhere: Path
) -> None:
    there = contents(elsewhere)
    with change_refused("unknown-area", elsewhere):
        remove(elsewhere)
    area = apply(plan).area
    (area / "kept" / "orders-0" / "link").symlink_to(elsewhere)
    remove(area)
    assert not area.exists()
    assert contents(elsewhere) == there


def test_unfinished_changes_are_found_without_their_plans(root: Path, plan: Plan) -> None:
    assert list(find_unfinished(root)) == []
    area = interrupted(plan)
    assert list(find_unfinished(root)) == [(area, "applying")]
    assert list(find_unfinished(root / "orders-0")) == [(area, "applying")]
    (area / "plan.json").write_bytes(b"[" * 1000)
    assert list(find_unfinished(root)) == [(area, "applying")]


@pytest.mark.parametrize("name", ["/d\0", "/\ud800", "s3://d/\0"])
def test_a_root_that_no_directory_can_have_is_refused(root: Path, plan: Plan, name: str) -> None:
    area = apply(plan).area
    before = contents(root)
    rewrite(area, lambda value: value.update(root=name))
    for read in (undo, lambda _: find_journals(root)):
        with pytest.raises(InvalidPlanError) as refusal:
            read(area)
        assert refusal.value.path == area / "plan.json"
    assert contents(root) == before


def test_an_unreadable_area_does_not_hide_the_others(root: Path, plan: Plan) -> None:
    area = apply(plan).area
    unreadable = area.with_name(f"{area.name}-0")
    unreadable.mkdir()
    (unreadable / "plan.json").write_text("[")
    journal, other = open_journals(root)
    assert isinstance(journal, Journal)
    assert journal.area == area
    assert isinstance(other, UnreadableArea)
    assert other.area == unreadable
    assert isinstance(other.error, InvalidPlanError)


def test_undo_does_not_change_a_kept_file_that_has_another_hard_link(
    root: Path, plan: Plan, tmp_path: Path
) -> None:
    """Such as that of a backup by hard links, or of a file linked into the area."""
    before = contents(root)
    area = apply(plan).area
    there = {}
    for kept in [path for path in (area / "kept").rglob("*") if path.is_file()]:
        elsewhere = tmp_path / kept.name
        elsewhere.write_bytes(kept.read_bytes())
        elsewhere.chmod(0o600)
        os.utime(elsewhere, ns=(10**18, 10**18))
        kept.unlink()
        os.link(elsewhere, kept)
        there[elsewhere] = attributes(elsewhere)
    assert there
    undo(area)
    assert contents(root) == before
    assert {path: attributes(path) for path in there} == there
    assert all(path.stat().st_nlink == 1 for path in there)


def attributes(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


def test_a_kept_file_in_a_backup_by_hard_links_is_restored_as_the_same_inode(
    root: Path, plan: Plan, tmp_path: Path
) -> None:
    """Its attributes are right already, so that nothing changes in the backup."""
    backup = tmp_path / "backup.index"
    os.link(root / PATH, backup)
    there = attributes(backup)
    undo(apply(plan))
    assert attributes(root / PATH) == attributes(backup) == there


@pytest.mark.parametrize("verb", [undo, resume])
@pytest.mark.parametrize("trust_area", [False, True])
def test_a_journal_that_is_a_hard_link_is_not_written_to(
    root: Path, plan: Plan, tmp_path: Path, verb: Callable[..., object], trust_area: bool
) -> None:
    area = interrupted(plan) if verb is resume else apply(plan).area
    other = tmp_path / "other"
    os.link(area / "journal.jsonl", other)
    before, lines = contents(root), other.read_bytes()
    with change_refused("untrusted-area", area / "journal.jsonl"):
        verb(area, trust_area=trust_area)
    assert (contents(root), other.read_bytes()) == (before, lines)
    if verb is undo:
        remove(area, trust_area=trust_area)
        assert other.read_bytes() == lines
