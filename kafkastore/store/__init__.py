"""Logs and stores as callers have them: reads and lookups over one partition, or over many."""
