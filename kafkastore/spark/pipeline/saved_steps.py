"""What the steps of a run came to, kept in its working directory, so that another can go on.

One file for each step that is done, and one that says of what they are the results: the options,
and how every file of the stores was.  With other options, or when a file has another size or
modification time since, nothing is taken over.  In place, the files that the run's own plans name
are left out of that: whether those are as planned the migration finds out, file by file.  So how
all other files were is kept with the plans, if nothing had changed until then.
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
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.json_text import parse_json
from kafkastore.fs import FileSystem
from kafkastore.paths import to_path
from kafkastore.segment.small_file import read_own_file
from kafkastore.spark.pipeline.output_directory import STEPS

_STARTED = "started"
_PLANS = "plans"


class SavedSteps:
    """The results of a run's steps so far.

    Parameters
    ----------
    working : Path
        The run's working directory.
    """

    def __init__(self, working: Path) -> None:
        self._working = working
        self._folder = working / STEPS

    def take_over(self, options: Mapping[str, Any], stores: Sequence[str]) -> dict[str, Any] | None:
        """Find out whether what an earlier run has left is still good; remove it if it is not.

        Parameters
        ----------
        options : mapping
            What results depend on, besides the stores.
        stores : sequence of str
            Where the stores are read.

        Returns
        -------
        dict or None
            What was given to `start` beside that; None if there is nothing to take over.
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
        """Remove what an earlier run has left."""
        for path in self._working.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)

    def start(
        self, options: Mapping[str, Any], stores: Sequence[str], also: Mapping[str, Any]
    ) -> None:
        """Note of what the results will be that are kept from here on."""
        states = _states(stores)
        self.write(_STARTED, {"options": options, "states": states, "also": also})

    def write_plans(self, plans: Sequence[Plan], stores: Sequence[str]) -> None:
        """Keep the plans, durable, before any of them is applied.

        Parameters
        ----------
        plans : sequence of Plan
        stores : sequence of str
            Where the stores are that change: those of the plans; none, where copies do.
        """
        others = None
        started = self.read(_STARTED)
        if stores and started is not None:
            paths = [[change.path for change in plan.changes] for plan in plans]
            others = {"paths": paths, "states": _states(stores, paths)}
            if _states(stores) != started["states"]:
                others = None  # nor will they be when the plans are applied
        texts = [plan.to_json() for plan in plans]
        self.write(_PLANS, {"others": others, "plans": texts})

    def read_plans(self, roots: Sequence[Path]) -> list[Plan] | None:
        """Return the plans that were kept, each of the store that it is to be applied to.

        Raises
        ------
        ChangeRefusedError
            If one is of another directory.
        """
        value = self.read(_PLANS)
        if value is None:
            return None
        plans = [Plan.from_json(text) for text in value["plans"]]
        if [os.path.realpath(plan.root) for plan in plans] != list(map(os.path.realpath, roots)):
            raise ChangeRefusedError(
                f"{self._path(_PLANS)} has plans of other directories; run without --resume"
            )
        return plans

    def write(self, name: str, value: object) -> None:
        """Keep a value of JSON's types, whole and durable."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        check_own(self._folder, os.lstat(self._folder), is_directory=True)
        text = json.dumps(value, default=_listed)
        FileSystem().replace_content(self._path(name), text.encode())

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what was kept under a name.

        Raises
        ------
        ChangeRefusedError
            If others than this user and root may have written it, or it is not what a run keeps.
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
                f"{path} can't be read ({error}); run without --resume, which removes it"
            ) from error
        if not isinstance(value, dict):
            raise ChangeRefusedError(f"{path} must be an object; run without --resume")
        return value

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.json"


def state_of(root: Path, left_out: Collection[str] = frozenset()) -> str:
    """Digest the names, sizes and modification times of the files of a store.

    Parameters
    ----------
    root : Path
        The directory.
    left_out : collection of str
        Relative paths that do not count.

    Returns
    -------
    str
        Hexadecimal.
    """
    digest = hashlib.sha256(kafkastore.__version__.encode())
    for path, *state in _files(root, ""):
        if path not in left_out:
            digest.update(f"{path}\0{state}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(root: Path, inner: str) -> Iterator[tuple[str, int, int]]:
    """List files by name, as deep as partitions have any: path, size, modification time.

    Those that a killed job was still writing are not the store's. What can't be looked at counts by
    its error, which the steps tell of.
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
    """Return a value of a type that JSON does not have as one that it has."""
    return list(value) if isinstance(value, Sequence) else str(value)


def _plain(value: object) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))
