"""How PySpark finds the data source by itself.

A session imports every top-level module called ``pyspark_*`` when it first looks for a data source,
and registers the class that the module calls ``DefaultSource``. So each session on a machine where
kafkastore is installed pays for this import, and fails with it: nothing is imported here that the
session has not got already.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from kafkastore.spark.source.data_source import KafkaStoreDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for the data source until the format is asked for, and then makes it."""

    def __new__(cls, options: dict[str, str]) -> KafkaStoreDataSource:  # type: ignore[misc]
        """Make the data source itself."""
        from kafkastore.spark.source.data_source import KafkaStoreDataSource

        return KafkaStoreDataSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkastore"
