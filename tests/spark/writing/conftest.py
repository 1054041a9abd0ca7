"""A directory for logs that tests write."""
import pytest


@pytest.fixture
def target(tmp_path):
    return tmp_path / "other" / "logs"
