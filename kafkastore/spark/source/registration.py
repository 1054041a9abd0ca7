"""Registration of the format with a session: what Spark keeps of the data source."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

from kafkastore.spark.by_value import missing_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Placeholder(DataSource):
    """Create the data source in a worker, when the format is used."""

    def __new__(cls, options: dict[str, str]) -> Any:
        """Return the data source itself."""
        try:
            from kafkastore.spark.source.data_source import KafkaStoreDataSource
        except ModuleNotFoundError as error:
            raise missing_module(error) from None
        return KafkaStoreDataSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkastore"


def register(spark: SparkSession) -> None:
    """Register the format ``kafkastore``; see `kafkastore.spark.register`."""
    spark.dataSource.register(Placeholder)


# A worker must be able to unpickle the class before it imports this package.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
    sys.modules[__name__]
)
