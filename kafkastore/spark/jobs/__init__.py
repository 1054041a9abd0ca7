"""Jobs over every partition of a store, as tables: each a pure function of a partition directory.

``docs/jobs.md`` has their columns.
"""
from __future__ import annotations

from kafkastore.spark.jobs.changing import migrate, reindex
from kafkastore.spark.jobs.checking import predict, verify, verify_summary
from kafkastore.spark.jobs.positions import failover, lag
from kafkastore.spark.jobs.surveying import records_to_parquet, survey
from kafkastore.spark.jobs.times import compare, latency

__all__ = [
    "compare",
    "failover",
    "lag",
    "latency",
    "migrate",
    "predict",
    "records_to_parquet",
    "reindex",
    "survey",
    "verify",
    "verify_summary",
]
