"""``kafkastore migrate``: time indexes for directories from before them."""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from kafkastore.changes.plan import Plan
from kafkastore.cli.applied import apply_plan, finish, go_back, unfinished
from kafkastore.cli.confirm import check_can_confirm
from kafkastore.cli.copies import make_copy
from kafkastore.cli.failures import FOUND_PROBLEMS, note
from kafkastore.cli.json_lines import json_option
from kafkastore.cli.plan_options import carry_out, index_interval_option, rewriting_options
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import ANY_PATH, paths_argument, select, topic_options
from kafkastore.cli.tables import counted
from kafkastore.migration import (
    ENTRY_OFFSETS,
    MODES,
    PartitionSurvey,
    Survey,
    plan,
    survey,
    survey_partition,
)
from kafkastore.migration.plan import EntryOffset, Mode

#: Modes that make indexes of the records, so that logs must be read.
_READING_MODES = ("auto", "rebuild")


@click.command()
@paths_argument(required=False)
@topic_options
@click.option(
    "--mode", type=click.Choice(MODES), default="auto", show_default=True,
    help="rebuild: from the records' timestamps. kip-33: one entry by modification time. empty: "
    "as brokers do. auto: rebuild where there are timestamps, else kip-33.",
)
@click.option(
    "--entry-offset", type=click.Choice(ENTRY_OFFSETS), default="next", show_default=True,
    help="Offset of an entry by modification time: the next segment's first, or the segment's.",
)
@index_interval_option("Kafka's setting of that name, for rebuilt indexes.")
@rewriting_options("migrate")
@click.option("--resume", is_flag=True, help="Finish what was interrupted in PATH.")
@click.option("--undo", "undo_area", type=ANY_PATH, metavar="AREA",
              help="Put everything back that lies in this undo area.")
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    mode: Mode,
    entry_offset: EntryOffset,
    index_interval_bytes: int,
    dry_run: bool,
    copy_to: Path | None,
    in_place: bool,
    yes: bool,
    undo_dir: Path | None,
    resume: bool,
    undo_area: Path | None,
    as_json: bool,
) -> int:
    """Plan time indexes for log directories from before them, and make them where asked to.

    Log files and modification times stay as they are. Each index file is wholly old or wholly new
    at any instant; what is replaced is kept, and --undo brings it back.
    """
    if undo_area is not None:
        return go_back(undo_area, leave_changed=False, as_json=as_json)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'")
    if dry_run and (in_place or resume):
        raise click.UsageError("--dry-run goes without --in-place and --resume")
    if copy_to is not None and (in_place or resume or len(paths) > 1):
        raise click.UsageError("--copy-to goes with one PATH, without --in-place and --resume")
    if in_place and not yes:
        check_can_confirm("--in-place")
    if resume:
        return _resume(paths, undo_dir, as_json)
    job = _Job(topics, partitions, mode, entry_offset, index_interval_bytes, undo_dir, as_json)
    if copy_to is not None and not dry_run:
        return job.migrate_copy(paths[0], copy_to)
    surveyed = [job.survey(path) for path in paths]
    plans = [job.plan(each) for each in surveyed]
    if copy_to is not None:
        plans = [replace(planned, root=os.path.abspath(copy_to)) for planned in plans]
    for each, planned in zip(surveyed, plans, strict=True):
        job.show(each, planned)
    skipped = sum(map(_skipped, surveyed))
    changes = sum(len(planned.changes) for planned in plans)
    if not in_place or not changes:
        if changes and not as_json:
            print("nothing was changed; --copy-to DEST migrates a copy, --in-place this directory")
        return FOUND_PROBLEMS if skipped else 0
    carry_out(paths, plans, undo_dir, asks=not yes, as_json=as_json)
    return job.end(skipped)


class _Job:
    """One migration: what the options say."""

    def __init__(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        mode: Mode,
        entry_offset: EntryOffset,
        index_interval_bytes: int,
        undo_dir: Path | None,
        as_json: bool,
    ) -> None:
        self.topics, self.partitions = topics, partitions
        self.mode, self.entry_offset = mode, entry_offset
        self.index_interval_bytes = index_interval_bytes
        self.undo_dir, self.as_json = undo_dir, as_json

    def survey(self, path: Path) -> Survey:
        """Look at a directory, or at the partitions chosen in it."""
        chosen = select([path], self.topics, self.partitions)
        reading = self.mode in _READING_MODES
        with progress(f"reading {path.name}", len(chosen.topic_partitions)) as advance:
            if not self.topics and not self.partitions:
                return survey(
                    path,
                    index_interval_bytes=self.index_interval_bytes,
                    read_logs=reading,
                    progress=lambda done: advance(1),
                )
            found: list[PartitionSurvey] = []
            for log in chosen.logs():
                found.append(
                    survey_partition(
                        log,
                        directory="" if log.log_dir is None else log.path.name,
                        index_interval_bytes=self.index_interval_bytes,
                        read_logs=reading,
                    )
                )
                advance(1)
        whole = survey(
            path, index_interval_bytes=self.index_interval_bytes, read_logs=False
        )
        return replace(whole, partitions=tuple(found))

    def plan(self, surveyed: Survey) -> Plan:
        """Plan what the survey found lacking."""
        planned: Plan = plan(surveyed, self.mode, entry_offset=self.entry_offset)
        return planned

    def show(self, surveyed: Survey, planned: Plan) -> None:
        """Print what was found, and the plan."""
        for warning in surveyed.warnings:
            note(str(warning))
        if not self.as_json:
            segments = [each for part in surveyed.partitions for each in part.segments]
            without = sum(each.time_index != "present" for each in segments)
            print(
                f"{surveyed.root}: {counted(len(segments), 'segment')} of "
                f"{counted(len(surveyed.partitions), 'partition')}, "
                f"{without:,} without time index entries"
            )
        print_plan(planned, as_json=self.as_json)

    def migrate_copy(self, source: Path, destination: Path) -> int:
        """Copy a directory, and migrate the copy."""
        select([source], self.topics, self.partitions)  # complains before anything is copied
        make_copy(source, destination, as_json=self.as_json)
        surveyed = self.survey(destination)
        planned = self.plan(surveyed)
        self.show(surveyed, planned)
        apply_plan(planned, self.undo_dir, as_json=self.as_json)
        return self.end(_skipped(surveyed))

    def end(self, skipped: int) -> int:
        """Say what was not done; return the exit code."""
        if skipped and not self.as_json:
            print(f"not done: {counted(skipped, 'segment')} whose log can't be read to its end")
        return FOUND_PROBLEMS if skipped else 0


def _skipped(surveyed: Survey) -> int:
    """Count the segments that are left alone because their log can't be read to its end."""
    return sum(
        each.scan is not None and each.scan.problem is not None
        for part in surveyed.partitions
        for each in part.segments
    )


def _resume(paths: Sequence[Path], undo_dir: Path | None, as_json: bool) -> int:
    """Finish the plans that were interrupted in some directories."""
    for path in paths:
        journals = unfinished(path, undo_dir)
        if not journals:
            note(f"nothing was interrupted in {path}")
        for journal in journals:
            finish(journal.area, as_json=as_json)
    return 0
