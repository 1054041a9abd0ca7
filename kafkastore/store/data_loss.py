"""Records that a read or a stream was to return, and that no longer exist."""
from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition


class LossKind(StrEnum):
    """How records were lost."""

    DELETED = "deleted"
    """Retention has deleted them."""
    TRUNCATED = "truncated"
    """The log was truncated."""
    REWRITTEN = "rewritten"
    """The log was truncated, and has other records now."""
    GONE = "gone"
    """The partition directory is missing."""


class Loss(NamedTuple):
    """A partition's loss as a sentence, and the offset to continue reading from."""

    kind: LossKind
    topic_partition: TopicPartition
    resume_offset: int
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class DataLossError(KafkaStoreError):
    """Records that existed when a read was planned no longer exist.

    Parameters
    ----------
    advice : str
        What to do about it.
    *losses : Loss
        The losses, one for each partition.
    """

    def __init__(self, advice: str, *losses: Loss) -> None:
        super().__init__(advice, *losses)
        self.advice, self.losses = advice, losses

    def __str__(self) -> str:
        return "; ".join(map(str, self.losses)) + self.advice
