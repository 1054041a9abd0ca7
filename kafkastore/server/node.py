"""One node of Kafka's protocol: each request finds its answer here.

What reads files runs in threads, so that a slow disk holds up no other client; what concerns groups
runs in the event loop, which has all of their state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafkastore.formats.messages.message_codec import Elsewhere
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
from kafkastore.server.authentication import Authentication, Users
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.describing_requests import DescribingRequests
from kafkastore.server.fetch.sessions import FetchSessions
from kafkastore.server.fetch.waiting import LogWatch
from kafkastore.server.fetching import Fetched, Fetching
from kafkastore.server.group_requests import GroupRequests
from kafkastore.server.reading_requests import ReadingRequests
from kafkastore.server.served_log import ServedLog

#: Most bytes of records in one response, however many a client asks for.
MAX_FETCH_BYTES = 64 * 1024 * 1024
_THREADS = 8
_OLDEST_VERSION = 0


class Client(NamedTuple):
    """Who sends a request; `authentication` is None if it needs none."""

    host: str
    authentication: Authentication | None = None

    @property
    def is_authenticated(self) -> bool:
        """Whether its requests are answered."""
        return self.authentication is None or self.authentication.user is not None


class UnknownRequestError(Exception):
    """A request, or a version of one, that is not answered: the connection ends."""


Handler = Callable[[Values, RequestHeader, Client], Awaitable[Values | None]]


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
    ) -> None:
        self._users = users
        self._catalog = catalog
        self._reading = ReadingRequests(catalog, node, rules)
        self._fetching = Fetching(catalog, node, MAX_FETCH_BYTES)
        self._sessions = FetchSessions(self._fetching.topic_name)
        self._groups = GroupRequests(catalog, node)
        self._threads = ThreadPoolExecutor(_THREADS, "kafkastore-serve")
        self._watch: LogWatch[ServedLog] = LogWatch(self._threads)
        self._handlers = self._all_handlers()
        if users is None:
            for key in _OF_AUTHENTICATION:
                del self._handlers[key]
        if not with_groups:
            for key in _OF_GROUPS:
                del self._handlers[key]

    def close(self) -> None:
        """End timers and threads."""
        self._groups.close()
        self._watch.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def client(self, host: str) -> Client:
        """Return a client that has just connected."""
        return Client(host, None if self._users is None else Authentication(self._users))

    async def answer(
        self, header: RequestHeader, frame: bytes, position: int, client: Client
    ) -> list[bytes | Elsewhere] | None:
        """Return the response to a request in parts; None if it gets none.

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
        fields = await handler(parse_request(header, frame, position), header, client)
        return None if fields is None else pack_response(header, fields)

    def _all_handlers(self) -> dict[int, Handler]:
        reading, groups = self._reading, self._groups
        describing = DescribingRequests(self._catalog)
        return {
            ApiKey.PRODUCE: self._refuse_produce,
            ApiKey.FETCH: self._fetch,
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
            ApiKey.JOIN_GROUP: self._join_group,
            ApiKey.SYNC_GROUP: self._sync_group,
            ApiKey.HEARTBEAT: self._of_group(groups.heartbeat),
            ApiKey.LEAVE_GROUP: self._of_group(groups.leave_group),
            ApiKey.OFFSET_COMMIT: self._of_group(groups.offset_commit),
            ApiKey.OFFSET_FETCH: self._of_group(groups.offset_fetch),
            ApiKey.LIST_GROUPS: self._of_group(groups.list_groups),
            ApiKey.DESCRIBE_GROUPS: self._of_group(groups.describe_groups),
        }

    def _in_thread(self, answer: Callable[[Values, int], Values]) -> Handler:
        async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, answer, request, header.version)

        return handler

    def _of_group(self, answer: Callable[[Values, int], Values]) -> Handler:
        async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
            await self._groups.load()
            return answer(request, header.version)

        return handler

    async def _api_versions(
        self, _request: Values, _header: RequestHeader, _client: Client
    ) -> Values:
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

    async def _fetch(self, request: Values, header: RequestHeader, _client: Client) -> Values:
        """Read; at the end of the logs wait for more, up to the client's time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(request["max_wait_ms"], 0) / 1000
        least_bytes = min(request["min_bytes"], request["max_bytes"], MAX_FETCH_BYTES)
        context = self._sessions.context(request, header.version)
        while True:
            fetched: Fetched = await loop.run_in_executor(
                self._threads, self._fetching.fetch, context.wanted, request, header.version
            )
            is_enough = fetched.records_bytes >= least_bytes or not fetched.may_wait
            if is_enough or (left := deadline - loop.time()) <= 0:
                break
            fetched.close()
            if not await self._watch.wait(fetched.logs, left) and not fetched.records_bytes:
                break    # nothing is read again that has not changed
        ends = self._fetching.node_endpoints(fetched.rows, request, header.version)
        return context.respond(fetched.rows) | ends


_OF_AUTHENTICATION = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_BEFORE_AUTHENTICATION = (ApiKey.API_VERSIONS, *_OF_AUTHENTICATION)
_OF_GROUPS = (
    ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
)
