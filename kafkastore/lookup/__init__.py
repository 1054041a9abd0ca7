"""Which offset is at a time, by several rules; see ``docs/lookups.md``."""
