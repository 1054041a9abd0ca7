"""The seed of all that this run draws; ``conftest.py`` sets it, `--randomly-seed` repeats it."""
import os

SEED = int(os.environ["KAFKASTORE_SEED"])
