"""The batch writer, which writes a DataFrame as segments that a broker can load."""
