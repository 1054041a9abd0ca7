"""The pipeline: from log directories to Parquet, migrated copies and a report."""
from __future__ import annotations

from kafkastore.spark.pipeline.steps import run_pipeline

__all__ = ["run_pipeline"]
