"""A place for logs that tests write."""
import pytest
from spark.unsynced import without_waiting

__all__ = ["target", "without_waiting"]


@pytest.fixture
def target(tmp_path):
    return tmp_path / "beside" / "logs"
