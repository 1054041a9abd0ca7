"""Copy a whole log directory into an object store, with a plan's changes.

Objects cannot be renamed all at once, so the copy contains an object `COPYING` until it is
complete; this package does not read it before. That object identifies the copy, so that the same
copy can continue after an interruption. The other objects appear complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.copy_file import changed_during_copy
from kafkastore.changes.copy_store import check_unchanged, list_files, not_empty, overlapping
from kafkastore.changes.directory_lock import check_no_broker
from kafkastore.changes.inspection import changed_since_plan
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import Content, Plan, Prefix
from kafkastore.errors import (
    ChangeRefusedError,
    RefusalReason,
    RemoteObjectChangedError,
    RemoteStoreError,
)
from kafkastore.log.parallel.parallel_map import ParallelMap, StopFlag
from kafkastore.paths import is_url, list_again, open_path, to_path
from kafkastore.remote.new_store import NewStore
from kafkastore.remote.stores import COPYING, RemoteObject
from kafkastore.remote.tree import object_at
from kafkastore.runner import Progress, Runner

#: Uploads wait for the network, not for a core.
THREADS = 8
#: The limits of one call; a larger file is alone in its call.
BATCH_FILES = 100
BATCH_BYTES = 256 << 20


class UploadedStore(NamedTuple):
    """A copy in an object store; `bytes` is the total size of its objects.

    `empty` has the relative paths of directories without files, for which there are no objects;
    `left_out` is as in `StoreCopy`.
    """

    url: str
    files: int
    bytes: int
    empty: tuple[str, ...]
    left_out: Mapping[str, Exception]


class _NewObject(NamedTuple):
    """One object to create: path, content, size in bytes, identity."""

    path: str
    content: Content
    size: int
    sha256: str | None  # of content that a plan makes
    mtime_ns: int  # of the source file

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)


class UploadBatch(NamedTuple):
    """Files of one directory of the source, uploaded by one call.

    `directory` is relative to the source `root`; `url` is the copy.
    """

    root: str
    directory: str
    url: str
    files: tuple[_NewObject, ...]

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes."""
        return sum(each.size for each in self.files)


class _NotWantedError(Exception):
    """The upload was cancelled."""


def unfinished_at(url: str) -> bool:
    """Return whether there is an unfinished copy at a URL; False if that is unknown."""
    try:
        return COPYING in NewStore(url).list_objects()
    except RemoteStoreError:
        return False


def _by_threads(batches: Sequence[UploadBatch], source: Path) -> ParallelMap[UploadBatch, int]:
    stop = StopFlag()
    work = partial(upload, source=source, is_wanted=lambda: not stop.is_set)
    return ParallelMap(work, batches, THREADS, "upload", stop=stop)


def upload_store(
    source: str | os.PathLike[str],
    url: str,
    plan: Plan,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> UploadedStore:
    """Copy a directory, with a plan's changes, into an object store.

    `url` must be empty, or an interrupted run's. Modification times, modes and owners are not kept.
    Refused if the source is in use or changed; after a RemoteStoreError, call again to continue.
    """
    source = to_path(os.path.realpath(open_path(source)))
    new = _place(source, url)
    check_no_broker(source)
    left_out: dict[str, Exception] = {}
    listing = list_files(source, [], left_out)
    changes = [each for each in plan.changes if os.path.dirname(each.path) not in left_out]
    files = [*_files(replace(plan, changes=tuple(changes)), listing)]
    identity = _identity(files)
    known = _begin(new, identity)
    missing = [each for each in files if known.get(each.path) != each.size]
    batches = [*_batches(source, new.url, missing)]
    with (
        _by_threads(batches, source)
        if runner is None
        else nullcontext(runner(upload, batches, weigh=attrgetter("bytes")))
    ) as uploaded:
        done = len(files) - len(missing)
        for batch, _ in zip(batches, uploaded, strict=True):
            done += len(batch.files)
            if progress is not None:
                progress(done, len(files))
    list_again(source)
    check_unchanged(source, listing)
    check_no_broker(source)
    there = new.list_objects()
    mark = there.pop(COPYING, None)
    sizes = {path: each.size for path, each in there.items()}
    if sizes != {each.path: each.size for each in files}:
        raise ChangeRefusedError(
            f"another process writes to {new.url}; name another destination",
            RefusalReason.CHANGED,
            new.url,
        )
    if mark is not None:
        _finish(new, mark, identity)
    empty = tuple(_empty_directories(listing))
    return UploadedStore(new.url, len(files), sum(sizes.values()), empty, left_out)


def _empty_directories(listing: Sequence[tuple[str, os.stat_result]]) -> Iterator[str]:
    """Yield the directories of a listing that contain nothing."""
    for (path, status), (following, _) in zip_longest(listing, listing[1:], fillvalue=("", None)):
        if status and stat.S_ISDIR(status.st_mode) and not following.startswith(f"{path}/"):
            yield path


def upload(
    batch: UploadBatch, source: Path | None = None, is_wanted: Callable[[], bool] = lambda: True
) -> int:
    """Upload the files of a batch; return their total size in bytes.

    Without a listed `source`, as in another process, it lists the batch's directory.
    """
    if source is None:
        directory = open_path(
            os.path.join(batch.root, batch.directory), with_all_below=batch.directory != ""
        )
    else:
        directory = source / batch.directory
    new = NewStore(batch.url)
    for file in batch.files:
        path = directory / os.path.basename(file.path)
        remote = object_at(path) if file.sha256 is None else None
        if remote is None or not new.copy(file.path, remote):
            new.put(file.path, _checked(path, file, is_wanted), file.size)
        elif not is_wanted():
            raise _NotWantedError
    return batch.bytes


def _checked(
    path: Path, file: _NewObject, is_wanted: Callable[[], bool]
) -> Iterator[bytes | memoryview]:
    """Yield a file's bytes; raise at the end if they are not as planned."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks_of(file.content, path):
        if not is_wanted():
            raise _NotWantedError
        if file.sha256 is not None:
            digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size != file.size or file.sha256 not in (None, digest.hexdigest()):
        raise changed_during_copy(path)


def check_place(source: str | os.PathLike[str], url: str) -> None:
    """Refuse an occupied destination, and a source in use, before the source is read."""
    real = to_path(os.path.realpath(open_path(source)))
    _objects_at(_place(real, url))
    check_no_broker(real)


def _place(source: Path, url: str) -> NewStore:
    new, given = NewStore(url), str(source)
    if is_url(given):
        old = NewStore(given)
        if new.contains(old) or old.contains(new):
            raise overlapping(given, new.url)
    return new


def _objects_at(new: NewStore) -> dict[str, RemoteObject]:
    there = new.list_objects()
    if there and COPYING not in there:
        raise not_empty(new.url)
    return there


def _files(
    plan: Plan, listing: Sequence[tuple[str, os.stat_result]]
) -> Iterator[_NewObject]:
    """Yield the files of the copy; refuse a plan for another state of the source."""
    there = {
        path: (status.st_size, status.st_mtime_ns)
        for path, status in listing
        if stat.S_ISREG(status.st_mode)
    }
    changes = {each.path: each for each in plan.changes}
    for change in plan.changes:
        before = change.before and (change.before.size, change.before.mtime_ns)
        for path, planned in (
            (change.path, before),
            *((each.path, (each.size, each.mtime_ns)) for each in change.relies_on),
        ):
            if there.get(path) != planned:
                raise changed_since_plan(os.path.join(plan.root, path))
    if COPYING in there:
        raise ChangeRefusedError(
            f"{plan.root} is an unfinished copy: it contains {COPYING}",
            RefusalReason.UNFINISHED,
            plan.root,
        )
    for path in sorted(there.keys() | changes.keys()):
        if _is_unfit(path):
            raise ChangeRefusedError(
                f"{os.path.join(plan.root, path)!r} can't be an object's name: rename it",
                RefusalReason.UNSUPPORTED,
                path,
            )
        size, mtime_ns = there.get(path, (0, 0))
        change_here = changes.get(path)
        if change_here is None:
            yield _NewObject(path, Prefix(size), size, None, mtime_ns)
        elif change_here.after is not None and change_here.content is not None:
            after = change_here.after
            yield _NewObject(path, change_here.content, after.size, after.sha256, mtime_ns)


def _is_unfit(path: str) -> bool:
    """Return whether a path is not valid text, or would be truncated by s3fs."""
    return "?versionId=" in path or path != path.encode(errors="replace").decode()


def _identity(files: Iterable[_NewObject]) -> bytes:
    """Return the bytes that identify this copy."""
    digest = hashlib.sha256()
    for each in files:
        digest.update(json.dumps([each.path, each.size, each.sha256, each.mtime_ns]).encode())
    return json.dumps({"copy": digest.hexdigest()}).encode()


def _begin(new: NewStore, identity: bytes) -> dict[str, int]:
    """Mark the destination as ours; return the sizes of existing objects."""
    there = _objects_at(new)
    mark = there.pop(COPYING, None)
    if mark is None and not new.put_new(COPYING, identity):
        mark = new.list_objects().get(COPYING)  # another process was faster
    if mark is not None:
        try:
            _check_mark(new, mark, identity)
        except RemoteObjectChangedError:
            if COPYING in new.list_objects():
                raise
            return _begin(new, identity)  # another process has finished, or was undone
    return {path: each.size for path, each in there.items()}


def _finish(new: NewStore, mark: RemoteObject, identity: bytes) -> None:
    """Remove the mark, unless another process has removed it."""
    try:
        _check_mark(new, mark, identity)
    except RemoteObjectChangedError:
        if COPYING in new.list_objects():
            raise
    else:
        new.remove_parts()
        new.remove(COPYING)


def _check_mark(new: NewStore, mark: RemoteObject, identity: bytes) -> None:
    if mark.size != len(identity) or mark.read(0, mark.size) != identity:
        raise ChangeRefusedError(
            f"{new.url} has an unfinished copy of another directory, or of an earlier state; "
            "remove it, or name another destination",
            RefusalReason.UNFINISHED,
            new.url,
        )


def _batches(source: Path, url: str, files: Iterable[_NewObject]) -> Iterator[UploadBatch]:
    """Group files by directory, up to a number of files and bytes."""
    by_directory = sorted(files, key=lambda each: (each.directory, each.path))
    for directory, group in groupby(by_directory, lambda each: each.directory):
        batch: list[_NewObject] = []
        size = 0
        for file in group:
            if len(batch) == BATCH_FILES or (batch and size + file.size > BATCH_BYTES):
                yield UploadBatch(str(source), directory, url, tuple(batch))
                batch, size = [], 0
            batch.append(file)
            size += file.size
        yield UploadBatch(str(source), directory, url, tuple(batch))
