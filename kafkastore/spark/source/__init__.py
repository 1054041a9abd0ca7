"""The data source ``kafkastore``: reads and writes raw logs as frames."""
