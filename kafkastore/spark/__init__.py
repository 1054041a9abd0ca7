"""Kafka log directories on Spark: a data source, jobs, and a pipeline.

Importing this package does not import PySpark.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from kafkastore.spark.session import NoSparkError, session
from kafkastore.spark.shipping import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoSparkError", "archive", "register", "session"]


def register(spark: SparkSession) -> None:
    """Register the format ``kafkastore`` with a Spark session.

    Parameters
    ----------
    spark : SparkSession
        A classic session, or one of Spark Connect.

    Notes
    -----
    If this package is installed, Spark finds the format by itself, through the module
    `pyspark_kafkastore`.
    """
    from kafkastore.spark.source import registration

    registration.register(spark)
