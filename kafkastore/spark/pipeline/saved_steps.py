"""Results of a run's steps, saved so that another run can resume.

The run's working directory has one file for each finished step, and one that says what the results
depend on: the options, and the size and modification time of every file of the stores. If any of
these differ, nothing is reused. In place, files that the run's own plans name do not count, because
the migration itself checks them file by file. So the state of all other files is saved with the
plans, if nothing had changed until then.
"""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kafkastore
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo_area import check_own
from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.fs import FileSystem
from kafkastore.paths import to_path
from kafkastore.segment.small_file import read_own_file
from kafkastore.spark.pipeline.output_directory import STEPS

_STARTED = "started"
_PLANS = "plans"
#: The names in these values.
_NAMES = {_STARTED: {"options", "states", "also"}, _PLANS: {"others", "plans"}}


class SavedSteps:
    """The saved results of a run's steps, in its working directory."""

    def __init__(self, working: Path) -> None:
        self._working = working
        self._folder = working / STEPS

    def take_over(self, options: Mapping[str, Any], stores: Sequence[str]) -> dict[str, Any] | None:
        """Return what `start` was given as `also`, if the saved results are still valid.

        If not, remove them and return None. Results depend on `options` and on the files of
        `stores`.
        """
        started = self.read(_STARTED)
        if started is not None and started["options"] == _plain(options):
            kept = (self.read(_PLANS) or {}).get("others") or {
                "paths": None, "states": started["states"],
            }
            if _states(stores, kept["paths"]) == kept["states"]:
                also: dict[str, Any] = started["also"]
                return also
        self.discard()
        return None

    def discard(self) -> None:
        """Remove the saved results of an earlier run."""
        for path in self._working.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)

    def start(
        self, options: Mapping[str, Any], stores: Sequence[str], also: Mapping[str, Any]
    ) -> None:
        """Record what the results saved from now on depend on."""
        states = _states(stores)
        self.write(_STARTED, {"options": options, "states": states, "also": also})

    def write_plans(self, plans: Sequence[Plan], stores: Sequence[str]) -> None:
        """Save the plans, flushed to disk, before any of them is applied.

        `stores` are the stores that the plans change; empty if copies are changed.
        """
        others = None
        started = self.read(_STARTED)
        if stores and started is not None:
            paths = [[change.path for change in plan.changes] for plan in plans]
            others = {"paths": paths, "states": _states(stores, paths)}
            if _states(stores) != started["states"]:
                others = None  # files have changed since the start, so results are not reusable
        texts = [plan.to_json() for plan in plans]
        self.write(_PLANS, {"others": others, "plans": texts})

    def read_plans(self, roots: Sequence[Path]) -> list[Plan] | None:
        """Return the saved plans, checked against the stores to which they are applied.

        Raises `ChangeRefusedError` if a plan is of another directory.
        """
        value = self.read(_PLANS)
        if value is None:
            return None
        plans = [Plan.from_json(text) for text in value["plans"]]
        if [os.path.realpath(plan.root) for plan in plans] != list(map(os.path.realpath, roots)):
            raise ChangeRefusedError(
                f"{self._path(_PLANS)} has plans of other directories; run without --resume",
                RefusalReason.CHANGED, self._path(_PLANS),
            )
        return plans

    def write(self, name: str, value: object) -> None:
        """Save a JSON value atomically and flush it to disk."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        check_own(self._folder, os.lstat(self._folder), is_directory=True)
        text = json.dumps(value, default=_listed)
        FileSystem().replace_content(self._path(name), text.encode())

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a saved value.

        Raises `ChangeRefusedError` if users other than this one and root may have written it, or if
        it is not a value that a run saves.
        """
        path = self._path(name)
        try:
            check_own(self._folder, os.lstat(self._folder), is_directory=True)
            check_own(path, os.lstat(path), is_directory=False)
            value = parse_json(read_own_file(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ChangeRefusedError(
                f"{path} can't be read ({error}); run without --resume, which removes it",
                RefusalReason.CHANGED, path,
            ) from error
        names = _NAMES.get(name, set())
        if not isinstance(value, dict) or not names <= value.keys():
            raise ChangeRefusedError(
                f"{path} must be an object with {', '.join(sorted(names)) or 'results'}; run "
                "without --resume",
                RefusalReason.CHANGED, path,
            )
        return value

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.json"


def state_of(root: Path, left_out: Collection[str] = frozenset()) -> str:
    """Return a hex digest of the names, sizes and modification times of files.

    `left_out` are relative paths that do not count.
    """
    digest = hashlib.sha256(kafkastore.__version__.encode())
    for path, *state in _files(root, ""):
        if path not in left_out:
            digest.update(f"{path}\0{state}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(root: Path, inner: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and modification time of a store's files, by name.

    Looks only as deep as partitions; skips partial files; yields errors, which the steps report.
    """
    try:
        with os.scandir(root / inner) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        yield inner, -1, error.errno or 0
        return
    for entry in listed:
        path = f"{inner}/{entry.name}" if inner else entry.name
        if entry.name.startswith("kafkastore-") and ".new" in entry.name:
            continue
        try:
            status = entry.stat()
        except OSError as error:
            yield path, -1, error.errno or 0
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield path, status.st_size, status.st_mtime_ns
        elif not inner:
            yield from _files(root, path)


def _states(
    stores: Sequence[str], left_out: Sequence[Collection[str]] | None = None
) -> list[str]:
    each_left_out = left_out or [()] * len(stores)
    return [
        state_of(to_path(path), frozenset(paths))
        for path, paths in zip(stores, each_left_out, strict=True)
    ]


def _listed(value: object) -> object:
    """Convert a value that JSON cannot represent to one that it can."""
    return list(value) if isinstance(value, Sequence) else str(value)


def _plain(value: object) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))
