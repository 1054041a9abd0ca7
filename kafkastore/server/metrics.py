"""What a server counts of its requests and connections, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafkastore.errors import MissingExtraError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server.client import EndReason

_ERROR_CODE = "error_code"
#: From answers out of memory to a Fetch that waits, s.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: For a scraper to send its request, s.
_READ_SECONDS = 10


class ServerMetrics:
    """Counters of requests and connections, which threads share.

    Raises `MissingExtraError` without prometheus_client.
    """

    def __init__(self) -> None:
        MissingExtraError.check("prometheus_client", "serve")
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "kafkastore_request_seconds",
            "Time from the last byte of a request to the last byte of its response; Fetch waits "
            "for new records.",
            ["api"], buckets=_BUCKETS, registry=self.registry,
        )
        self._errors = Counter(
            "kafkastore_errors", "Error codes in responses, one for each partition or group.",
            ["api", "error"], registry=self.registry,
        )
        self._sent = Counter(
            "kafkastore_sent_bytes", "Bytes of the responses sent.", registry=self.registry,
        )
        self._ended = Counter(
            "kafkastore_connections_ended", "Connections that ended, by reason.", ["reason"],
            registry=self.registry,
        )
        for reason in EndReason:
            self._ended.labels(reason)

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Show the number of open connections."""
        from prometheus_client import Gauge

        gauge = Gauge("kafkastore_connections", "Open connections.", registry=self.registry)
        gauge.set_function(count)

    def connection_ended(self, reason: EndReason) -> None:
        """Count a connection that ended."""
        self._ended.labels(reason).inc()

    def answered(self, api_key: int, size: int, seconds: float) -> None:
        """Count a request whose response was sent."""
        self._seconds.labels(_api_name(api_key)).observe(seconds)
        self._sent.inc(size)

    def count_errors(self, api_key: int, response: Values) -> None:
        """Count the error codes in a response."""
        for code in _error_codes(response):
            self._errors.labels(_api_name(api_key), ErrorCode(code).name).inc()


def _api_name(api_key: int) -> str:
    """Return Kafka's name of a request."""
    return ApiKey(api_key).name.title().replace("_", "")


def _error_codes(value: Any) -> Iterator[int]:
    """Yield the error codes in a structure and those in it."""
    if isinstance(value, dict):
        if code := value.get(_ERROR_CODE):
            yield code
        for field in value.values():
            if isinstance(field, list | tuple | dict):
                yield from _error_codes(field)
    elif value and isinstance(value[0], dict):
        for each in value:
            yield from _error_codes(each)


@contextmanager
def metrics_endpoint(metrics: ServerMetrics, host: str, port: int) -> Iterator[int]:
    """Answer scrapes while the block runs; yield the port."""
    from prometheus_client import start_http_server

    server, thread = start_http_server(port, host, metrics.registry)
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Handler", (handler,), {"timeout": _READ_SECONDS})
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
