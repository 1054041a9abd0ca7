"""The batch writer: a DataFrame as segments that a broker loads."""
