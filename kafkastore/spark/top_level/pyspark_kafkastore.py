"""How PySpark finds the data source by itself.

A session imports every top-level module called ``pyspark_*`` when it first looks for a data source,
and registers the class that the module calls ``DefaultSource``.
"""
from kafkastore.spark.data_source import KafkaStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
