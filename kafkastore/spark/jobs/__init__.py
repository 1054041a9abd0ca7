"""Jobs over every partition that return Spark tables, and jobs that change files.

``docs/jobs.md`` lists the columns of the tables.
"""
from __future__ import annotations

from kafkastore.spark.jobs.changing import migrate, reindex
from kafkastore.spark.jobs.latest import latest_records
from kafkastore.spark.jobs.records import records_to_parquet
from kafkastore.spark.jobs.tables import (
    best_replicas,
    compare,
    failover,
    groups,
    inventory,
    lag,
    latency,
    list_logs,
    predict_start,
    retention,
    share_lag,
    sizing,
    transactions,
    verify,
    verify_summary,
)

__all__ = [
    "best_replicas",
    "compare",
    "failover",
    "groups",
    "inventory",
    "lag",
    "latency",
    "latest_records",
    "list_logs",
    "migrate",
    "predict_start",
    "records_to_parquet",
    "reindex",
    "retention",
    "share_lag",
    "sizing",
    "transactions",
    "verify",
    "verify_summary",
]
