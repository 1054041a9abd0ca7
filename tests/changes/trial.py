"""The invariants of a job, whatever happens while it runs."""

from __future__ import annotations

import os
from pathlib import Path

from changes.jobs import Job
from changes.power_loss import RecordedDisk, State
from changes.small_store import contents, tree
from models.seed import SEED

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals, remove
from kafkastore.changes.file_state import read_state
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo


class Trial:
    """The invariants of one job, whatever happens to the disk."""

    def __init__(self, job: Job) -> None:
        self.job = job
        disk = RecordedDisk(job.top)
        self.start = disk.live.copy()
        self.area = apply(job.plan, threads=1, fs=disk).area
        disk.note()
        self.applying, self.done = disk, disk.live
        self.planned = tree(job.root)
        for each in job.plan.changes:
            state = read_state(job.root / each.path)
            assert (state is None) if each.after is None else each.after.same_file(state)

    def state_now(self) -> State:
        """Read the state of the disk."""
        return RecordedDisk(self.job.top).live

    def undone(self) -> RecordedDisk:
        """Record an undo."""
        self.done.write(self.job.top)
        disk = RecordedDisk(self.job.top)
        undo(self.area, threads=1, fs=disk)
        disk.note()
        return disk

    def check_files(self) -> None:
        """Check that each file is as before or as planned, and that replaced files are kept."""
        now, before, planned = tree(self.job.root), self.job.before, self.planned
        changed = {each.path for each in self.job.plan.changes}
        changed |= {f"{each.name}/" for each in self.job.plan.directories}
        kept = contents(self.area / "kept") if (self.area / "kept").is_dir() else {}
        for path in before.keys() | planned.keys() | now.keys():
            name = Path(path).name
            if name.startswith("kafkastore-"):
                assert name.endswith(".new")
                assert self.job.plan.id in name
                continue
            assert now.get(path) in (before.get(path), planned.get(path)), path
            if path not in changed:
                assert now[path] == before[path], path
            elif path in before and now.get(path) != before[path]:
                assert kept.get(path) == before[path], path

    def check(self, states: list[State]) -> None:
        """Check that from each state both a rerun and an undo succeed."""
        for number, state in enumerate(states):
            try:
                self._check(state, number)
            except BaseException as error:
                error.add_note(f"--randomly-seed={SEED}, state {number} of {len(states)}")
                for path, node in state.paths():
                    error.add_note(f"  {path} {str(state.files.get(node, 'directory'))[:150]}")
                raise

    def _check(self, state: State, number: int) -> None:
        job = self.job
        state.write(job.top)
        self.check_files()
        for journal in find_journals(job.root):
            resume(journal)
        journal = apply(job.plan)
        assert (journal.phase, tree(job.root)) == ("applied", self.planned)
        undo(journal)
        assert tree(job.root) == job.before
        if number % 4 == 0:
            remove(journal)
            assert os.listdir(job.top) == [job.root.name]
        state.write(job.top)
        for journal in find_journals(job.root):
            assert undo(journal).phase == "undone"
        assert [path for path in tree(job.root) if "kafkastore-" in path] == []
        assert tree(job.root) == job.before
