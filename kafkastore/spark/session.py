"""A Spark session with everything set that the data source and the jobs rely on."""
from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.errors import KafkaStoreError
from kafkastore.spark.java import find_java, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_SOCKET_FOLDER = 60
"""Bytes of a path to which a socket's name of 42 bytes can be added: macOS allows 103 in all."""


class NoSparkError(KafkaStoreError):
    """PySpark is not installed."""
