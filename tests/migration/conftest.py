"""Migration's tests do not test the disk."""

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes matter when power is lost, which the tests of changes model."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
