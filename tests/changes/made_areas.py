"""Plans, journals and undo areas that a released version made; later ones must read them.

``KAFKASTORE_SEED=0 python -m changes.made_areas`` in ``tests/`` makes those of the installed
version, ``made_areas/<version>.tar.xz``; an existing archive is never made again.
"""
from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from changes.faults import CountingFileSystem, Crash, CrashingFileSystem
from changes.jobs import JOBS, make

import kafkastore
from kafkastore.changes.apply import apply
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo import undo

FOLDER = Path(__file__).with_suffix("")
INDEX = "index.json"
#: The parts of a job: before and after it the files are known.
STATES = ("applied", "interrupted", "undone")
#: Name of a file, and its bytes' digest, modification time (ns) and mode.
Listing = dict[str, list[Any]]


class MadeArea(NamedTuple):
    """A disk with a log directory and its undo area, unpacked, and what its files should be."""

    top: Path
    area: Path
    plan_text: str
    before: Listing
    after: Listing

    @property
    def root(self) -> Path:
        return self.top / "kafka-logs"


def listing(root: Path) -> Listing:
    """List files by name, with digest, modification time and mode."""
    found: Listing = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            status, digest = path.stat(), hashlib.sha256(path.read_bytes()).hexdigest()
            name = path.relative_to(root).as_posix()
            found[name] = [digest, status.st_mtime_ns, status.st_mode & 0o7777]
    return found


def versions() -> list[str]:
    """List the versions whose archives are here."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def names(version: str) -> list[str]:
    """List the disks in an archive: a job and a state, such as ``convert/applied``."""
    with tarfile.open(FOLDER / f"{version}.tar.xz") as tar:
        index = tar.extractfile(INDEX)
        assert index is not None
        return sorted(json.load(index))


def unpack(version: str, name: str, to: Path) -> MadeArea:
    """Unpack one disk; its plan is of the new place, and of this user's files."""
    with tarfile.open(FOLDER / f"{version}.tar.xz") as tar:
        index = tar.extractfile(INDEX)
        assert index is not None
        entry = json.load(index)[name]
        for member in tar:
            if member.name.startswith(f"{name}/") and (file := tar.extractfile(member)):
                path = to / member.name.removeprefix(f"{name}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())
    for path_name, (_, mtime_ns, mode) in entry["files"].items():
        os.chmod(to / path_name, mode)
        os.utime(to / path_name, ns=(mtime_ns, mtime_ns))
    (area,) = (to / "disk").glob("*.kafkastore-undo-*")
    plan = area / "plan.json"
    text = plan.read_text()
    here = text.replace(entry["top"], str(to))
    here = re.sub(r'"user": \d+', f'"user": {os.geteuid()}', here)
    here = re.sub(r'"group": \d+', f'"group": {os.getegid()}', here)
    plan.write_text(here)
    # The names of the area and of temporary files have a digest of the plan.
    was, now = area.name.rpartition("-")[2], Plan.from_json(here).id
    for path in [*(to / "disk" / "kafka-logs").rglob(f"kafkastore-{was}.*"), area]:
        area = path.rename(path.with_name(path.name.replace(was, now)))
    return MadeArea(to / "disk", area, text, entry["before"], entry["after"])


def _alter(name: str, state: str, top: Path) -> tuple[Listing, Listing]:
    """Do a job, or a part of it; return its files before and after the whole job."""
    calls = CountingFileSystem()
    if state == "interrupted":
        with TemporaryDirectory() as other:
            apply(make(name, Path(other, "disk")).plan, threads=1, fs=calls)
    job = make(name, top)
    before = listing(job.root)
    after = before | {
        each.path: [each.after.sha256, each.after.mtime_ns, each.after.mode]
        for each in job.plan.changes if each.after is not None
    }
    for each in job.plan.changes:
        if each.after is None:
            del after[each.path]
    if state == "interrupted":
        with suppress(Crash):
            apply(job.plan, threads=1, fs=CrashingFileSystem(len(calls.calls) * 2 // 3))
        return before, after
    journal = apply(job.plan, threads=1)
    assert listing(job.root) == after
    if state == "undone":
        undo(journal)
    return before, after


def _made(scratch: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield name, folder and index entry of each disk."""
    for job in JOBS:
        for state in STATES:
            name = f"{job.replace(' ', '-')}/{state}"
            here = scratch / name
            before, after = _alter(job, state, here / "disk")
            yield name, here, {
                "top": str(here), "before": before, "after": after, "files": listing(here),
            }


def write_archive() -> Path:
    """Make the archive of the installed version."""
    path = FOLDER / f"{kafkastore.__version__}.tar.xz"
    FOLDER.mkdir(exist_ok=True)
    if path.exists():
        raise SystemExit(f"{path} exists: it is what that version made")
    index: dict[str, Any] = {}
    packed = io.BytesIO()
    with TemporaryDirectory() as scratch, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, folder, entry in _made(Path(scratch)):
            index[name] = entry
            for file in sorted(entry["files"]):
                data = (folder / file).read_bytes()
                member = tarfile.TarInfo(f"{name}/{file}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        data = json.dumps(index, sort_keys=True).encode()
        member = tarfile.TarInfo(INDEX)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    path.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return path


if __name__ == "__main__":
    print(write_archive())
