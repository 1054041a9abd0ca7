"""The module by which PySpark finds the data source.

A session imports every top-level module called ``pyspark_*`` when it first looks for a data source,
and registers the class that the module calls ``DefaultSource``. Every session on a machine with
kafkastore installed pays for this import, and fails if it fails. So this module imports nothing
that the session has not already imported.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from kafkastore.spark.source.data_source import KafkaStoreDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Placeholder that creates the data source when the format is first used."""

    def __new__(cls, options: dict[str, str]) -> KafkaStoreDataSource:  # type: ignore[misc]
        """Return the data source itself."""
        from kafkastore.spark.source.data_source import KafkaStoreDataSource

        return KafkaStoreDataSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkastore"
