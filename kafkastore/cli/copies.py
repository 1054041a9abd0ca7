"""Copy a whole directory, to a disk or to an object store."""
from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path

from kafkastore.changes.copy_store import COPYING_SUFFIX, copy_store
from kafkastore.changes.plan import Plan
from kafkastore.changes.upload_store import check_place, unfinished_at, upload_store
from kafkastore.cli.failures import left_behind_is_told, note
from kafkastore.cli.json_lines import write_json
from kafkastore.cli.on_spark import executor
from kafkastore.cli.progress import counting, progress
from kafkastore.cli.tables import counted
from kafkastore.cli.visible import visible
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.file_names import InvalidNameError, parse_partition_directory
from kafkastore.paths import is_url
from kafkastore.store.log_store import is_partition_directory


def make_copy(source: Path, destination: Path, *, as_json: bool) -> None:
    """Copy a directory, and print a summary unless `as_json`."""
    _check_name(source, destination.name)
    if not destination.parent.is_dir():
        raise ChangeRefusedError(f"{destination.parent} is no directory; make it first")
    with (
        progress(f"copying {source.name}", None) as advance,
        left_behind_is_told(partial(_left_behind, destination)),
    ):
        copied = copy_store(source, destination, progress=counting(advance))
    if not as_json:
        files = counted(copied.files, "file")
        print(visible(f"copied {files} of {source} to {copied.destination}"))


def check_upload(source: Path, url: str) -> None:
    """Refuse an unsuitable destination URL before the source is read; see `make_copy`."""
    _check_name(source, url.rstrip("/").rpartition("/")[2])
    check_place(source, url)


def upload_copy(
    source: Path,
    url: str,
    plan: Plan,
    *,
    as_json: bool,
    master: str | None = None,
    mtimes_are_kept: bool = False,
) -> None:
    """Copy a directory into an object store, with a plan's changes, and print a summary.

    `master` is the Spark master whose executors do the work; None: threads do it.
    `mtimes_are_kept`: the user has saved the modification times, which objects do not keep.
    """
    what, left_behind = f"copying {source.name}", partial(_unfinished, url)
    if master is None:
        with progress(what, None) as advance, left_behind_is_told(left_behind):
            copied = upload_store(source, url, plan, progress=counting(advance))
    else:
        with executor(master, what) as runner, left_behind_is_told(left_behind):
            copied = upload_store(source, url, plan, runner=runner)
    if as_json:
        write_json({"kind": "copied", "root": url, "files": copied.files, "bytes": copied.bytes})
    else:
        files = counted(copied.files, "file")
        print(
            visible(f"copied {files} of {source} to {url}, ")
            + f"changed as planned: {len(plan.changes):,}"
        )
    for path in copied.empty:
        note(f"{path} is empty and no object stands for it: it is not in {url}")
    if not mtimes_are_kept and not is_url(str(source)):
        note(
            f"objects have no modification times but those of the upload: kafkastore migrate "
            f"{shlex.quote(str(source))} --save-mtimes FILE keeps a list"
        )


def _unfinished(url: str) -> str | None:
    """Describe an unfinished copy at this URL; None if there is none."""
    if not unfinished_at(url):
        return None
    return (
        f"the unfinished copy is {url}: the same command goes on with it while the source is as "
        "it was"
    )


def _check_name(source: Path, name: str) -> None:
    """Refuse a name under which the copy of one partition could not be opened."""
    if is_partition_directory(source):
        try:
            parse_partition_directory(name)
        except InvalidNameError as error:
            raise ChangeRefusedError(
                f"{source} is one partition, and so its copy is called as one: {error}; name it "
                f".../{source.name}"
            ) from error


def _left_behind(destination: Path) -> str | None:
    """Describe an unfinished copy at this path; None if there is none."""
    real = Path(os.path.realpath(destination))
    working = real.with_name(real.name + COPYING_SUFFIX)
    if not working.is_dir():
        return None
    return f"the unfinished copy is {working}: the same command goes on with it"
