"""Copy a directory to a disk or to an object store."""
from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kafkastore.changes.copy_store import COPYING_SUFFIX, check_copy_name, copy_store
from kafkastore.changes.plan import Plan
from kafkastore.changes.upload_store import check_place, unfinished_at, upload_store
from kafkastore.cli.options.on_spark import executor
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note, report_unfinished
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.progress import progress, to_progress_callback
from kafkastore.cli.output.tables import format_count
from kafkastore.errors import ChangeRefusedError
from kafkastore.paths import is_url
from kafkastore.shown_text import escape_control_characters


def make_copy(source: Path, destination: Path, problems: Problems, *, as_json: bool) -> None:
    """Copy a directory; print a summary unless `as_json`, and what is left out."""
    check_copy_name(source, destination.name)
    if not destination.parent.is_dir():
        parent = destination.parent
        if parent.exists():
            raise ChangeRefusedError(f"{parent} is a file; name a path in a directory")
        scheme, colon, rest = str(destination).partition(":/")
        if colon and scheme.isalnum():
            raise ChangeRefusedError(
                f"{parent} does not exist; did you mean {scheme}://{rest.lstrip('/')}?"
            )
        raise ChangeRefusedError(f"{parent} does not exist; create it first")
    with (
        progress(f"copying {source.name}", None) as advance,
        report_unfinished(partial(_describe_unfinished, destination)),
    ):
        copied = copy_store(source, destination, progress=to_progress_callback(advance))
    if not as_json:
        files = format_count(copied.files, "file")
        print_text(f"copied {files} of {source} to {copied.destination}")
    _report_left_out(source, copied.left_out, problems)


def check_upload(source: Path, url: str) -> None:
    """Refuse an unsuitable destination before the source is read."""
    check_copy_name(source, url.rstrip("/").rpartition("/")[2])
    check_place(source, url)


def upload_copy(
    source: Path,
    url: str,
    plan: Plan,
    problems: Problems,
    *,
    as_json: bool,
    master: str | None = None,
    mtimes_are_kept: bool = False,
) -> None:
    """Copy a directory with a plan's changes into a store, and print a summary.

    `master` is the Spark master whose executors do the work; None: threads do it.
    `mtimes_are_kept`: the user has saved the modification times, which objects do not keep.
    """
    what, describe = f"copying {source.name}", partial(_unfinished, url)
    if master is None:
        with progress(what, None) as advance, report_unfinished(describe):
            copied = upload_store(source, url, plan, progress=to_progress_callback(advance))
    else:
        with executor(master, what) as runner, report_unfinished(describe):
            copied = upload_store(source, url, plan, runner=runner)
    if as_json:
        write_json({"kind": "copied", "root": url, "files": copied.files, "bytes": copied.bytes})
    else:
        files = format_count(copied.files, "file")
        made = sum(os.path.dirname(each.path) not in copied.left_out for each in plan.changes)
        print(
            escape_control_characters(f"copied {files} of {source} to {url}, ")
            + f"changed as planned: {made:,}"
        )
    _report_left_out(source, copied.left_out, problems)
    for path in copied.empty:
        print_note(
            f"{path} is empty; object stores have no empty directories, so {url} does not "
            "contain it"
        )
    if not mtimes_are_kept and not is_url(str(source)):
        print_note(
            "objects have only their upload times; to save the modification times: kafkastore "
            f"migrate {shlex.quote(str(source))} --save-mtimes FILE"
        )


def _report_left_out(source: Path, left_out: Mapping[str, Exception], problems: Problems) -> None:
    """Report the partitions that were not copied."""
    for directory, error in left_out.items():
        problems.add(f"{directory} is not copied", error, source / directory)


def _unfinished(url: str) -> str | None:
    """Describe an unfinished copy at this URL; None if there is none."""
    if not unfinished_at(url):
        return None
    return (
        f"the unfinished copy is {url}: the same command continues it if the source has not "
        "changed"
    )


def _describe_unfinished(destination: Path) -> str | None:
    """Describe an unfinished copy at this path; None if there is none."""
    real = Path(os.path.realpath(destination))
    working = real.with_name(real.name + COPYING_SUFFIX)
    if not working.is_dir():
        return None
    return f"the unfinished copy is {working}: the same command continues it"
