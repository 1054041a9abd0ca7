"""The error of a metadata record that does not fit."""

from __future__ import annotations

from kafkastore.errors import KafkaStoreError


class ReplayError(KafkaStoreError):
    """A metadata record that does not fit the state before it.

    Parameters
    ----------
    record : str
        Kafka's name of the record.
    problem : str
        What does not fit.

    Attributes
    ----------
    offset : int or None
        The record's offset in the metadata log, or its index in a snapshot.
    """

    def __init__(self, record: str, problem: str) -> None:
        super().__init__(record, problem)
        self.record, self.problem = record, problem
        self.offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset} of the metadata"
        return f"{self.record}{where}: {self.problem}"
