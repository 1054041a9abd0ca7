"""The data source ``kafkastore``, which reads raw logs as frames and writes frames as raw logs."""
