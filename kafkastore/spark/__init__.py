"""Kafka log directories on Spark: a data source, jobs over partition directories, the pipeline.

Nothing is imported of Spark before it is used.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.spark.session import NoSparkError, session
from kafkastore.spark.shipping import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoSparkError", "archive", "register", "session"]


def register(spark: SparkSession) -> None:
    """Make the format ``kafkastore`` known to a session; see `data_source.register`."""
    from kafkastore.spark.source import data_source

    data_source.register(spark)
