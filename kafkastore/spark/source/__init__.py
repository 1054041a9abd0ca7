"""The data source ``kafkastore``: raw logs as frames, frames as raw logs."""
