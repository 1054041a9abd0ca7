"""Topics and partitions that a shell offers when the user presses Tab."""
from __future__ import annotations

import os
from collections.abc import Iterator

import click

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition, is_topic_name
from kafkastore.paths import is_url
from kafkastore.store.log_store import open_store


def complete_topics(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """List the topics of the directories in the command line."""
    topics = {each.topic for each in _partitions(context)}
    return sorted(each for each in topics if each.startswith(incomplete))


def complete_partitions(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """List the numbers of the partitions of the chosen topics, or of all."""
    topics = context.params.get("topics")
    found = [each for each in _partitions(context) if not topics or each.topic in topics]
    numbers = {each.partition for each in found}
    return [str(each) for each in sorted(numbers) if str(each).startswith(incomplete)]


def _partitions(context: click.Context) -> Iterator[TopicPartition]:
    """Yield the partitions of the directories that can be listed; URLs are left out."""
    # The words before an option without its value are in `args`, not yet in `params`.
    given = context.params.get("paths") or [each for each in context.args if each[:1] != "-"]
    for path in given:
        if is_url(path):
            continue  # the user waits
        try:
            partitions = open_store(os.path.expanduser(path)).partitions
        except (KafkaStoreError, OSError):
            continue
        # No shell gets other names, which a directory may have.
        yield from (each for each in partitions if is_topic_name(each.topic))
