"""Select partitions: the same arguments and options for every command."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from kafkastore.cli.options.topic_completion import complete_partitions, complete_topics
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.errors import KafkaStoreError, NotALogDirectoryError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.paths import is_url, open_path
from kafkastore.shown_text import similar_names
from kafkastore.store.log_store import LogStore, open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.topic_logs import is_pattern, match_topics

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class _LocalPath(click.Path):
    """A local path as given; refuses a URL, of which ``pathlib`` would drop a slash."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path."""
        if is_url(value):
            self.fail(
                f"{value} is a URL, and a local directory is needed: name one, and upload the "
                "result",
                param,
                context,
            )
        return super().convert(open_path(value), param, context)


class _FilePath(_LocalPath):
    """A local path of a file; refuses a slash at its end, which ``pathlib`` drops."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path."""
        if str(value).endswith("/"):
            self.fail(f"{value} is a directory: add the name of a file", param, context)
        return super().convert(value, param, context)


class _StorePath(click.Path):
    """A path as given, or the local directory that represents a URL."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path; a URL is listed here, but not while a shell completes a word."""
        if context is not None and context.resilient_parsing and is_url(value):
            return value
        return super().convert(open_path(value), param, context)


class _DestinationPath(click.Path):
    """A local path to create, or a URL as text."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path, or the URL."""
        return value if is_url(value) else super().convert(open_path(value), param, context)


#: A local path. The layers below check that it exists and is readable.
ANY_PATH = _LocalPath(path_type=Path, readable=False)
#: The same, for a file to write.
FILE_PATH = _FilePath(path_type=Path, readable=False)
#: A local path or a URL, for a path that is only read.
STORE_PATH = _StorePath(path_type=Path, readable=False)
#: The destination of a copy: a local path, or a URL as text.
DESTINATION = _DestinationPath(path_type=Path, readable=False)


class NotInStoreError(KafkaStoreError, LookupError):
    """A topic or partition that is not in the given directories."""


class Selection(NamedTuple):
    """The selected partitions, in order; `logs` opens them one by one."""

    store: LogStore
    topic_partitions: tuple[TopicPartition, ...]

    def logs(self) -> Iterator[PartitionLog]:
        """Open the selected partitions one by one."""
        for topic_partition in self.topic_partitions:
            yield self.store.partitions[topic_partition]

    def only_log(self, option: str) -> PartitionLog:
        """Return the only selected partition, for an option that needs exactly one.

        Raises NotInStoreError, which names `option`, if several or none are selected.
        """
        if len(self.topic_partitions) != 1:
            raise NotInStoreError(
                f"{option} needs one partition, got {len(self.topic_partitions)}; "
                f"select one by --topic and --partition, or give its directory"
            )
        return self.store.partitions[self.topic_partitions[0]]


def paths_argument(*, required: bool = True) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``PATH…``, passed as `paths`."""
    return click.argument(
        "paths", metavar="PATH..." if required else "[PATH]...", nargs=-1, required=required,
        type=STORE_PATH,
    )


def metadata_option(function: FunctionT) -> FunctionT:
    """Add ``--metadata``."""
    return click.option(
        "--metadata", type=STORE_PATH, metavar="PATH",
        help="Where the cluster's metadata is: a log directory with __cluster_metadata-0, that "
        "directory, or a snapshot. Default: the selected directories, if they have it.",
    )(function)


def topic_option(help_text: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds ``--topic``, passed as `topics`."""
    return click.option(
        "--topic", "topics", multiple=True, metavar="NAME", shell_complete=complete_topics,
        help=help_text,
    )


def topic_options(function: FunctionT) -> FunctionT:
    """Add ``--topic`` and ``--partition``, passed as `topics` and `partitions`."""
    options = (
        topic_option(
            "Only this topic, or topics that match a pattern such as 'ord*', or one partition as "
            "topic-partition; may be repeated."
        ),
        click.option(
            "--partition",
            "partitions",
            multiple=True,
            type=WholeNumber(min=0),
            metavar="N",
            shell_complete=complete_partitions,
            help="Only this partition of each topic; may be repeated.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def select(
    paths: Sequence[Path], topics: Sequence[str] = (), partitions: Sequence[int] = ()
) -> Selection:
    """Open log.dirs roots or partition directories, and select partitions in them.

    No topics or numbers: all. A topic may be a pattern, or name a partition if no topic has that
    name. Raises NotALogDirectoryError or NotInStoreError.
    """
    try:
        store = open_store([*paths])
    except NotALogDirectoryError:
        _refuse_topics(paths)
        raise
    chosen = list(store.partitions)
    if topics:
        wanted = [_of_topic(name, chosen, paths) for name in topics]
        kept = {each for group in wanted for each in group}
        chosen = [each for each in chosen if each in kept]
    if partitions:
        for number in partitions:
            if not any(each.partition == number for each in chosen):
                raise NotInStoreError(_no_partition(number, topics, chosen, paths))
        chosen = [each for each in chosen if each.partition in partitions]
    return Selection(store, tuple(chosen))


def _refuse_topics(paths: Sequence[Path]) -> None:
    """Raise NotInStoreError if a topic of the directories is given as if it were one."""
    there = [path for path in paths if path.exists()]
    if not there or len(there) == len(paths):
        return
    topics = open_store(there).topics
    for path in paths:
        if str(path) in topics and not path.exists():
            raise NotInStoreError(f"{path} is a topic, not a path: write --topic {path}")


def _of_topic(
    name: str, there: Sequence[TopicPartition], paths: Sequence[Path]
) -> list[TopicPartition]:
    """Return the partitions that a name or a pattern selects."""
    topics = sorted({each.topic for each in there})
    if matching := {*match_topics(name, topics)}:
        return [each for each in there if each.topic in matching]
    if matching := {*match_topics(name, map(str, there))}:
        return [each for each in there if str(each) in matching]
    hint = hint_at(name, topics, [*topics, *map(str, there)])
    what = f"topic matches {name}" if is_pattern(name) else f"topic {name}"
    raise NotInStoreError(f"no {what} in {_names(paths)}; {hint or 'it has no partitions at all'}")


def hint_at(name: str, known: Sequence[str], alike: Sequence[str] = ()) -> str:
    """Return which known name is meant, or the first ones; empty if none is known.

    `alike` are all names that may be meant, `known` by default.
    """
    if not is_pattern(name) and (close := similar_names(name, alike or known)):
        return f"did you mean {close[0]}?"
    shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    return f"there are {shown}" if known else ""


def _no_partition(
    number: int,
    topics: Sequence[str],
    there: Sequence[TopicPartition],
    paths: Sequence[Path],
) -> str:
    numbers = sorted({each.partition for each in there})
    of = f" of {', '.join(topics)}" if topics else ""
    shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
    return f"no partition {number}{of} in {_names(paths)}; there are {shown or 'none'}"


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (", ..." if len(paths) > 3 else "")
