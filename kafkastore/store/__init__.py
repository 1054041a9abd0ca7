"""Logs and stores: reads and lookups in one partition, or in many."""
