"""Problems of a command over many partitions, which continues after each."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from kafkastore.cli.options.selection import Selection
from kafkastore.cli.output.failures import (
    FOUND_PROBLEMS,
    UNREADABLE,
    format_error,
    print_note,
    print_problem,
)
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_dir import UnknownLogStartWarning
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.unread_partition import UnreadPartition

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

on_corrupt_option = click.option(
    "--on-corrupt",
    type=click.Choice(get_args(OnCorrupt)),
    default="raise",
    show_default=True,
    help="At corrupt bytes: raise reports an error and ends the partition; stop ends the partition "
    "before them; skip continues at the next complete batch. The exit code is then not 0.",
)


class Problems:
    """The problems of one command on a number of partitions.

    `expect` adds to that number if it is not known from the start. `on_corrupt` is as chosen by
    `on_corrupt_option`; "raise" for commands without that option.
    """

    def __init__(self, partitions: int = 0, on_corrupt: OnCorrupt | None = None) -> None:
        self.on_corrupt: OnCorrupt = on_corrupt or "raise"
        self.count = 0
        self._has_choice = on_corrupt is not None
        self._partitions = partitions
        self._unreadable: set[str] = set()
        self._said: set[tuple[str, str]] = set()

    def expect(self, partitions: int) -> None:
        """Count further partitions of the command."""
        self._partitions += partitions

    @property
    def exit_code(self) -> int:
        """0 without problems; 2 if no partition could be read to its end, else 1."""
        if self._unreadable and len(self._unreadable) >= self._partitions:
            return UNREADABLE
        return FOUND_PROBLEMS if self.count else 0

    def logs(self, selection: Selection) -> Iterator[PartitionLog]:
        """Open the selected partitions one by one; report those that cannot be opened."""
        return self.results(selection, selection.topic_partitions, lambda log: log)

    def results(
        self,
        selection: Selection,
        topic_partitions: Iterable[TopicPartition],
        work: Callable[[PartitionLog], ResultT],
    ) -> Iterator[ResultT]:
        """Yield each partition's result of `work`; report unreadable ones."""
        for topic_partition in topic_partitions:
            try:
                result = work(selection.store.partitions[topic_partition])
            except (KafkaStoreError, OSError) as error:
                self.add(topic_partition, error)
            else:
                yield result

    def answered(self, partition: object, times: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield what has no `error`; report the errors of the others."""
        for each in times:
            error: Exception | None = each.error  # type: ignore[attr-defined]
            if error is None:
                yield each
            else:
                self.add(partition, error)

    def until_error(self, partition: object, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield items up to the first that cannot be read, which is reported."""
        iterator = iter(items)
        while True:
            try:
                item = next(iterator)
            except StopIteration:
                return
            except (KafkaStoreError, OSError) as error:
                self.add(partition, error)
                return
            yield item
            del item  # do not keep it in memory while the next one is read

    def add_unknown_starts(self, store: LogStore) -> None:
        """Report log directories whose log start offsets can't be read."""
        for log_dir in store.log_dirs:
            if log_dir.log_starts_error is not None:
                self.count += 1
                print_problem(str(UnknownLogStartWarning(log_dir.log_starts_error)))

    def add_unread(self, unread: Iterable[UnreadPartition]) -> None:
        """Report the partitions for which nothing is planned."""
        for each in unread:
            self.add(each.topic_partition, each.error, each.path)

    def add(self, partition: object, error: Exception, path: Path | None = None) -> None:
        """Report an unreadable partition; raise an error of any other kind.

        `path` distinguishes it from the same partition in another of the command's directories.
        """
        if not isinstance(error, KafkaStoreError | OSError):
            raise error
        self.count_unread(path or partition)
        hint = ""
        if isinstance(error, CorruptionError) and self._has_choice and self.on_corrupt == "raise":
            hint = "; --on-corrupt skip continues after it"
        # Several groups, times or tables may run into the same error.
        said = (str(partition), format_error(error))
        if said not in self._said:
            self._said.add(said)
            print_problem(f"{partition}: {format_error(error)}{hint}")

    def count_unread(self, partition: object) -> None:
        """Count an unreadable partition that the command reports itself."""
        self.count += 1
        self._unreadable.add(str(partition))

    def has_error(self, partition: object) -> bool:
        """Return whether a partition could not be read."""
        return str(partition) in self._unreadable

    def add_skipped(self, partition: object, skipped: Iterable[SkippedBytes]) -> None:
        """Report the bytes that were skipped in a partition."""
        for each in skipped:
            self.count += 1
            print_note(f"{partition}: {each}")
