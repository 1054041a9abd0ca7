"""A pytest fixture: directories as Kafka clusters; see ``docs/serve.md``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kafkastore.server.serving import ServedCluster, serve
from kafkastore.store.log_store import Paths


@pytest.fixture
def serve_kafka(request: pytest.FixtureRequest) -> Callable[..., ServedCluster]:
    """Return a function that serves directories until the test ends.

    It takes the arguments of `kafkastore.server.serve`, and may be called several times.
    """
    stack = ExitStack()
    request.addfinalizer(stack.close)  # noqa: PT021  (a generator may be dropped)

    def start(path: Paths, *arguments: Any, **options: Any) -> ServedCluster:
        return stack.enter_context(serve(path, *arguments, **options))

    return start
