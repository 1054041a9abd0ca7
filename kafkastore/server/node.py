"""One node of Kafka's protocol: each request finds its answer here.

What reads files runs in threads (`answering`); what concerns groups runs in the event loop, which
has all of their state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import (
    REQUESTS,
    ApiKey,
    RequestHeader,
    pack_response,
    parse_request,
)
from kafkastore.lookup.rules import CORRECT
from kafkastore.server.answering import Asked, InThread, Waiting
from kafkastore.server.authentication import Authentication, Users
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.client import Client
from kafkastore.server.describing_requests import DescribingRequests
from kafkastore.server.fetching import Fetching
from kafkastore.server.group_requests import GroupRequests
from kafkastore.server.metrics.request_metrics import ServerMetrics
from kafkastore.server.reading_requests import ReadingRequests
from kafkastore.server.sending import Parts, size_of

#: Most bytes of records in one response, however many a client asks for.
MAX_FETCH_BYTES = 64 * 1024 * 1024
#: A slow client holds one up for a moment, and so does one that may ask again at once.
_THREADS = 64
#: How often a client that waits for other members is looked at, s.
_LOOK_FOR_CLIENT_EVERY = 0.5
_OLDEST_VERSION = 0


class UnknownRequestError(Exception):
    """A request, or a version of one, that is not answered: the connection ends."""


#: Returns a response, or what is left to send of one.
Handler = Callable[[Values, RequestHeader, Client], Awaitable[Values | Parts | None]]


class ServedNode:
    """The answers of a server, without its connections."""

    def __init__(
        self,
        catalog: Catalog,
        node: Node,
        rules: str = CORRECT,
        *,
        with_groups: bool = True,
        users: Users | None = None,
        metrics: ServerMetrics | None = None,
    ) -> None:
        self._users = users
        self._metrics = metrics
        self._is_waiting_over = False
        self._waiting: set[asyncio.Future[Values | Parts | None]] = set()
        self._catalog = catalog
        self._reading = ReadingRequests(catalog, node, rules)
        self._fetching = Fetching(catalog, MAX_FETCH_BYTES)
        self._groups = GroupRequests(catalog, node)
        self._threads = ThreadPoolExecutor(_THREADS, "kafkastore-serve")
        self._handlers = self._all_handlers()
        if users is None:
            for key in _OF_AUTHENTICATION:
                del self._handlers[key]
        if not with_groups:
            for key in _OF_GROUPS:
                del self._handlers[key]

    async def close(self) -> None:
        """End timers and threads."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self._groups.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def positions(self) -> dict[tuple[str, str, int], int]:
        """Return the committed offset of each group, topic and partition."""
        return await self._groups.positions()

    def reload(self) -> None:
        """Read the committed offsets in the directories again, when they are asked for."""
        self._groups.forget_stored()

    def stop_waiting(self) -> None:
        """Answer the requests that wait, with what there is."""
        self._is_waiting_over = True

    def client(self, host: str, port: int) -> Client:
        """Return a client that has just connected."""
        users = self._users
        return Client(host, port, None if users is None else Authentication(users))

    async def answer(
        self, header: RequestHeader, frame: bytes, position: int, client: Client
    ) -> Parts | None:
        """Return what is left to send of the response to a request; None if it gets none.

        Raises `UnknownRequestError`, and `CorruptionError` for bytes that are no such request.
        """
        handler = self._handlers.get(header.api_key)
        if not client.is_authenticated and header.api_key not in _BEFORE_AUTHENTICATION:
            raise UnknownRequestError("a request before authentication")
        if handler is None:
            raise UnknownRequestError(f"request {header.api_key} is not answered")
        if header.version not in REQUESTS.descriptions[header.api_key].versions:
            if header.api_key != ApiKey.API_VERSIONS:
                raise UnknownRequestError(
                    f"version {header.version} of {ApiKey(header.api_key).name} is not answered"
                )
            known = self._reading.api_versions(self._handlers, ErrorCode.UNSUPPORTED_VERSION)
            return pack_response(header._replace(version=_OLDEST_VERSION), known)
        request = parse_request(header, frame, position)
        answered = await handler(request, header, client)
        return self.pack(header, answered, client) if isinstance(answered, dict) else answered

    def end_answer(self, client: Client) -> None:
        """Count the request of a client whose response was sent."""
        seconds = client.end_answer()
        if self._metrics is not None:
            self._metrics.answered(client.api_key, client.response_bytes, seconds)

    def pack(self, header: RequestHeader, response: Values, client: Client) -> Parts:
        """Pack a response, and count what is in it."""
        if self._metrics is not None:
            self._metrics.count_errors(header.api_key, response)
        parts = pack_response(header, response)
        client.response_bytes = size_of(parts)
        return parts

    def _all_handlers(self) -> dict[int, Handler]:
        reading, groups = self._reading, self._groups
        describing = DescribingRequests(self._catalog)
        return {
            ApiKey.PRODUCE: self._refuse_produce,
            ApiKey.FETCH: self._with_threads(self._fetch),
            ApiKey.LIST_OFFSETS: self._in_thread(reading.list_offsets),
            ApiKey.METADATA: self._in_thread(reading.metadata),
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SASL_HANDSHAKE: self._sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: self._sasl_authenticate,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._in_thread(reading.offset_for_leader_epoch),
            ApiKey.DESCRIBE_CLUSTER: self._in_thread(reading.describe_cluster),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._in_thread(reading.describe_topic_partitions),
            ApiKey.DESCRIBE_ACLS: self._in_thread(describing.describe_acls),
            ApiKey.DESCRIBE_CONFIGS: self._in_thread(describing.describe_configs),
            ApiKey.DESCRIBE_LOG_DIRS: self._in_thread(describing.describe_log_dirs),
            ApiKey.DESCRIBE_PRODUCERS: self._in_thread(describing.describe_producers),
            ApiKey.DESCRIBE_TRANSACTIONS: self._in_thread(describing.describe_transactions),
            ApiKey.LIST_TRANSACTIONS: self._in_thread(describing.list_transactions),
            ApiKey.FIND_COORDINATOR: self._of_group(groups.find_coordinator),
            ApiKey.JOIN_GROUP: self._while_connected(self._join_group),
            ApiKey.SYNC_GROUP: self._while_connected(self._sync_group),
            ApiKey.HEARTBEAT: self._of_group(groups.heartbeat),
            ApiKey.LEAVE_GROUP: self._of_group(groups.leave_group),
            ApiKey.OFFSET_COMMIT: self._of_group(groups.offset_commit),
            ApiKey.OFFSET_FETCH: self._of_group(groups.offset_fetch),
            ApiKey.LIST_GROUPS: self._of_group(groups.list_groups),
            ApiKey.DESCRIBE_GROUPS: self._of_group(groups.describe_groups),
        }

    def _in_thread(self, answer: Callable[[Values, int], Values]) -> Handler:
        return self._with_threads(lambda asked: answer(asked.request, asked.header.version))

    def _with_threads(self, answer: Callable[[Asked], Values | Waiting]) -> Handler:
        return InThread(answer, self, self._threads)

    def find(self, api_key: int) -> Handler | None:
        """Return what answers a request."""
        return self._handlers.get(api_key)

    def is_over(self, client: Client) -> bool:
        """Return whether a client no longer waits, and nothing of it is read ahead."""
        return self._is_waiting_over or client.has_left()

    def _while_connected(self, answer: Handler) -> Handler:
        """Send nothing if the client leaves, or the server ends, while it waits."""
        async def handler(
            request: Values, header: RequestHeader, client: Client
        ) -> Values | Parts | None:
            task = asyncio.ensure_future(answer(request, header, client))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK_FOR_CLIENT_EVERY)
                if not task.done() and self.is_over(client):
                    return None
            return task.result()

        return handler

    def _of_group(self, answer: Callable[[Values, int], Values]) -> Handler:
        async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
            await self._groups.load()
            return answer(request, header.version)

        return handler

    async def _api_versions(
        self, request: Values, _header: RequestHeader, client: Client
    ) -> Values:
        client.software = " ".join(filter(None, (
            request["client_software_name"], request["client_software_version"],
        )))
        return self._reading.api_versions(self._handlers)

    async def _sasl_handshake(
        self, request: Values, header: RequestHeader, client: Client
    ) -> Values:
        assert client.authentication is not None
        return client.authentication.handshake(request, header.version)

    async def _sasl_authenticate(
        self, request: Values, header: RequestHeader, client: Client
    ) -> Values:
        assert client.authentication is not None
        return await asyncio.to_thread(
            client.authentication.authenticate, request, header.version
        )

    async def _refuse_produce(
        self, request: Values, header: RequestHeader, _client: Client
    ) -> Values | None:
        if not request["acks"]:
            raise UnknownRequestError("a producer that wants no response can't be refused")
        return self._reading.refuse_produce(request, header.version)

    async def _join_group(self, request: Values, header: RequestHeader, client: Client) -> Values:
        return await self._groups.join_group(
            request, header.version, header.client_id or "", client.host
        )

    async def _sync_group(
        self, request: Values, _header: RequestHeader, _client: Client
    ) -> Values:
        return await self._groups.sync_group(request)

    def _fetch(self, asked: Asked) -> Values | Waiting:
        """Read; at the end of the logs the client waits for more."""
        fetched = self._fetching.fetch(asked.request, asked.header.version)
        is_enough = fetched.records_bytes >= asked.request["min_bytes"] or fetched.has_error
        is_late = time.monotonic() >= asked.deadline or self.is_over(asked.client)
        if is_enough or is_late or not fetched.logs:
            return fetched.response
        fetched.close()
        return Waiting(asked, fetched.logs)


_OF_AUTHENTICATION = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_BEFORE_AUTHENTICATION = (ApiKey.API_VERSIONS, *_OF_AUTHENTICATION)
_OF_GROUPS = (
    ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
)
