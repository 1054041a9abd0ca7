"""Find offsets by time, by several rules; see ``docs/lookups.md``."""
