"""The common part of commands over the partitions of a store."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkastore.arguments import thread_count
from kafkastore.cli.options.on_spark import (
    check_one_runner,
    executor,
    open_session,
    spark_option,
    threads_option,
)
from kafkastore.cli.options.selection import (
    Selection,
    metadata_option,
    paths_argument,
    select,
    topic_options,
)
from kafkastore.cli.options.times import (
    Moment,
    parse_moment,
    relative_option,
    resolve_times,
    zone_option,
)
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.grouped_lines import verbose_option
from kafkastore.cli.output.json_lines import json_option, write_json
from kafkastore.cli.output.partition_errors import Problems, on_corrupt_option
from kafkastore.errors import KafkaStoreError
from kafkastore.log.time_text import format_time
from kafkastore.runner import Failed, in_threads, run_here
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes

if TYPE_CHECKING:
    from kafkastore.jobs.job import Job
    from kafkastore.log.damage import OnCorrupt
    from kafkastore.metadata.cluster import Cluster
    from kafkastore.runner import Runner
    from kafkastore.writing.topic_settings import TopicSettings

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

#: Options that a command may name, in the order of its help, and their fields in `StoreCall`.
_OPTIONS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "metadata": ("metadata", metadata_option),
    "relative-to": ("relative_to", relative_option),
    "tz": ("zone", zone_option),
    "on-corrupt": ("on_corrupt", on_corrupt_option),
    "threads": ("threads", threads_option),
    "spark": ("master", spark_option),
    "verbose": ("verbose", verbose_option),
}


@dataclass
class StoreCall:
    """One call of a command: the values of the shared options, and its problems.

    The store is opened when `selection` is first used, so that a command can check its own options
    before.
    """

    paths: tuple[Path, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    metadata: Path | None = None
    as_json: bool = False
    relative_to: str = "now"
    zone: tzinfo | None = None
    on_corrupt: OnCorrupt | None = None
    threads: int | None = None
    master: str | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        check_one_runner(self.threads, self.master)

    @property
    def is_narrowed(self) -> bool:
        """Return whether topics or partitions were named."""
        return bool(self.topics or self.partitions)

    @property
    def is_weighed(self) -> bool:
        """Return whether the sizes of items are needed, by which Spark divides them."""
        return self.master is not None

    @cached_property
    def selection(self) -> Selection:
        """The selected partitions; raises NotALogDirectoryError or NotInStoreError."""
        return self.select(*self.paths)

    @cached_property
    def cluster(self) -> Cluster | None:
        """The cluster of ``--metadata``, or of the selected directories.

        A note says why the metadata log of the directories can't be read.
        """
        from kafkastore.store.cluster_metadata import find_cluster  # takes time that others save

        store = self.selection.store
        try:
            return find_cluster(store, self.metadata)
        except KafkaStoreError as error:
            if self.metadata is not None:
                raise
            print_note(f"the cluster's metadata is not used: {error}")
            return None

    @cached_property
    def remote_settings(self) -> TopicSettings:
        """The configurations that say which topics have remote storage.

        Without a sign of it, the metadata log of the directories is not read.
        """
        from kafkastore.writing.topic_settings import (
            TopicSettings,
            may_say_what_is_tiered,
            settings_of,
        )

        store = self.selection.store
        if self.metadata is None and not may_say_what_is_tiered(store):
            return TopicSettings()
        return settings_of(self.cluster, store, None)

    @cached_property
    def problems(self) -> Problems:
        """The problems of the selected partitions, and of what bounds them."""
        problems = Problems(len(self.selection.topic_partitions), self.on_corrupt)
        problems.add_unknown_starts(self.selection.store)
        return problems

    def select(self, *paths: Path) -> Selection:
        """Return the selected partitions of some directories."""
        return select(paths, self.topics, self.partitions)

    def parse_moment(self, text: str, more_names: Iterable[str] = ()) -> Moment:
        """Parse a time, which is in the zone of ``--tz`` if it names none."""
        return parse_moment(text, self.zone, more_names)

    def resolve_times(
        self, moments: Iterable[Moment], indexes: Indexes = DEFAULT_INDEXES
    ) -> list[int]:
        """Convert times to ms since 1970; relative ones count from ``--relative-to``."""
        return resolve_times(moments, self.selection, self.relative_to, indexes)

    def format_time(self, timestamp: int | None) -> str:
        """Format a timestamp in the zone of ``--tz``."""
        return format_time(timestamp, self.zone)

    def session(self) -> AbstractContextManager[Any]:
        """Start the Spark session of ``--spark`` once for all directories, or none."""
        return nullcontext() if self.master is None else open_session(self.master)

    def items(self, job: Any) -> Any:
        """Return the items of a job on the selected partitions."""
        selection = self.selection
        return job.items(selection.store, selection.topic_partitions, is_weighed=self.is_weighed)

    @property
    def here(self) -> Runner:
        """The threads of ``--threads``, by default one for each processor."""
        return in_threads(thread_count(self.threads))

    @contextmanager
    def executor(
        self, what: str, *, is_streamed: bool | None = None, here: Runner = run_here
    ) -> Iterator[Runner]:
        """Choose the runner of a job, and show a bar unless rows are printed."""
        streams = self.as_json if is_streamed is None else is_streamed
        with executor(self.master, what, here=here, while_printing=streams) as runner:
            yield runner

    def readable(
        self, job: Job[ItemT, ResultT], items: Sequence[ItemT], runner: Runner
    ) -> Iterator[tuple[ItemT, ResultT]]:
        """Run a job; report unreadable partitions, and skipped corrupt bytes."""
        for item, result in job.outcomes(items, runner):
            place = job.place(item)
            partition = f"{place['topic']}-{place['partition']}"
            if isinstance(result, Failed):
                self.problems.add(partition, result.error)
                continue
            if self.on_corrupt is not None:
                self.problems.add_skipped(partition, result.skipped)  # type: ignore[attr-defined]
            yield item, result

    def run(
        self,
        job: Job[ItemT, ResultT],
        items: Sequence[ItemT],
        what: str,
        rows: Callable[[ResultT], Iterable[Mapping[str, Any]]] | None = None,
    ) -> list[ResultT]:
        """Run a job; return its results, and write its `rows` if JSON is requested.

        JSON names the partition even if the row does not. `what` is the label of the bar.
        """
        results = []
        with self.executor(what) as runner:
            for item, result in self.readable(job, items, runner):
                results.append(result)
                if not self.as_json:
                    continue
                place = job.place(item)
                for row in (rows or job.rows)(result):
                    missing = [each for each in ("topic", "partition") if each not in row]
                    write_json({**{each: place[each] for each in missing}, **row})
        return results


def store_command(
    *names: str, has_paths: bool = True, paths_required: bool = True
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command of a function of a StoreCall.

    The command has ``PATH…``, ``--topic`` and ``--partition`` before the options of its own, and
    after them those of `names`, of ``_OPTIONS``, and ``--json``.
    """
    added = [each for name, each in _OPTIONS.items() if name in names]
    known = {"paths", "topics", "partitions", "as_json", *(field for field, _ in added)}

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def command(**values: Any) -> Any:
            shared = {name: values.pop(name) for name in known & values.keys()}
            return function(call=StoreCall(**shared), **values)

        own: list[click.Parameter] = getattr(function, "__click_params__", [])
        command.__click_params__ = []  # type: ignore[attr-defined]
        for option in (json_option, *(option for _, option in reversed(added))):
            command = option(command)
        command.__click_params__ += own  # type: ignore[attr-defined]
        command = topic_options(command)
        if has_paths:
            command = paths_argument(required=paths_required)(command)
        return click.command()(command)

    return decorate
