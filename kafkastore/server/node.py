"""One node of Kafka's protocol: each request finds its answer here.

What reads files runs in threads (`answering`); what concerns groups runs in the event loop, which
has all of their state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

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
from kafkastore.server.answering import LOOK_FOR_CLIENT_EVERY, Answering, InThread
from kafkastore.server.authentication import Authentication, Users
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.client import Client
from kafkastore.server.config_requests import ConfigRequests
from kafkastore.server.describing_requests import DescribingRequests
from kafkastore.server.fetch.fetch_requests import Fetching
from kafkastore.server.metrics import ServerMetrics
from kafkastore.server.reading_requests import ReadingRequests, is_known_software
from kafkastore.server.refusing_requests import REFUSALS, refuse_produce
from kafkastore.server.sending import Parts

if TYPE_CHECKING:
    from kafkastore.server.groups.coordinator import GroupCoordinator
    from kafkastore.server.groups.state_directory import StateDirectory

_OLDEST_VERSION = 0
_FIRST_VERSION_WITH_SOFTWARE = 3


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
        state: StateDirectory | None = None,
    ) -> None:
        self._users = users
        self._waiting: set[asyncio.Future[Values | Parts | None]] = set()
        self._catalog, self._node = catalog, node
        self._reading = ReadingRequests(catalog, node, rules)
        self._state = state
        self._coordinator: GroupCoordinator | None = None
        self._handlers: dict[int, Handler] = {}
        self._answering = Answering(self._handlers, metrics)
        self._handlers |= self._all_handlers()
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
        if self._coordinator is not None:
            await self._coordinator.close()
        self._answering.close()

    async def positions(self) -> dict[tuple[str, str, int], int]:
        """Return the committed offset of each group, topic and partition."""
        return await self._groups.groups.offsets.positions()

    def reload(self) -> None:
        """Read the committed offsets in the directories again, when they are asked for."""
        if self._coordinator is not None:
            self._coordinator.groups.offsets.forget_stored()

    def stop_waiting(self) -> None:
        """Answer the requests that wait, with what there is."""
        self._answering.stop_waiting()

    def client(self, host: str, port: int) -> Client:
        """Return a client that has just connected."""
        return Client(host, port, None if self._users is None else Authentication(self._users))

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
            known = self._reading.api_versions(
                self._handlers, _OLDEST_VERSION, ErrorCode.UNSUPPORTED_VERSION
            )
            return pack_response(header._replace(version=_OLDEST_VERSION), known)
        answered = await handler(parse_request(header, frame, position), header, client)
        if not isinstance(answered, dict):
            return answered
        return self._answering.pack(header, answered, client)

    def waiting(self, parts: Parts) -> AbstractContextManager[None]:
        """Count what is in memory of a response while it waits for its client."""
        return self._answering.waiting(parts)

    def end_answer(self, client: Client) -> None:
        """Count a request whose response was sent."""
        self._answering.end_answer(client)

    def _all_handlers(self) -> dict[int, Handler]:
        reading = self._reading
        describing = DescribingRequests(self._catalog)
        configs = ConfigRequests(self._catalog, self._node)
        fetching = Fetching(
            self._catalog, self._node, waiting_bytes=lambda: self._answering.waiting_bytes
        )
        return {
            ApiKey.PRODUCE: self._refuse_produce,
            ApiKey.FETCH: InThread(fetching.answer, self._answering),
            ApiKey.LIST_OFFSETS: self._in_thread(reading.list_offsets),
            ApiKey.METADATA: self._in_thread(reading.metadata),
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SASL_HANDSHAKE: self._sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: self._sasl_authenticate,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._in_thread(reading.offset_for_leader_epoch),
            ApiKey.DESCRIBE_CLUSTER: self._in_thread(reading.describe_cluster),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._in_thread(reading.describe_topic_partitions),
            ApiKey.DESCRIBE_ACLS: self._in_thread(describing.describe_acls),
            ApiKey.DESCRIBE_CONFIGS: self._in_thread(configs.describe_configs),
            ApiKey.DESCRIBE_LOG_DIRS: self._in_thread(describing.describe_log_dirs),
            ApiKey.DESCRIBE_PRODUCERS: self._in_thread(describing.describe_producers),
            ApiKey.DESCRIBE_TRANSACTIONS: self._in_thread(describing.describe_transactions),
            ApiKey.LIST_TRANSACTIONS: self._in_thread(describing.list_transactions),
            ApiKey.FIND_COORDINATOR: self._of_group(lambda groups: groups.members.find_coordinator),
            ApiKey.JOIN_GROUP: self._while_connected(self._join_group),
            ApiKey.SYNC_GROUP: self._while_connected(self._sync_group),
            ApiKey.HEARTBEAT: self._of_group(lambda groups: groups.members.heartbeat),
            ApiKey.LEAVE_GROUP: self._of_group(lambda groups: groups.members.leave_group),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer_group_heartbeat,
            ApiKey.OFFSET_COMMIT: self._of_offsets(lambda groups: groups.offsets.commit),
            ApiKey.OFFSET_FETCH: self._of_group(lambda groups: groups.offsets.fetch),
            ApiKey.OFFSET_DELETE: self._of_offsets(lambda groups: groups.offsets.delete_offsets),
            ApiKey.DELETE_GROUPS: self._of_offsets(lambda groups: groups.offsets.delete_groups),
            ApiKey.LIST_GROUPS: self._of_group(lambda groups: groups.descriptions.list_groups),
            ApiKey.DESCRIBE_GROUPS: self._of_group(
                lambda groups: groups.descriptions.describe_groups
            ),
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._of_group(
                lambda groups: groups.descriptions.describe_consumer_groups
            ),
            **{key: _at_once(refuse) for key, refuse in REFUSALS.items()},
        }

    def _in_thread(self, answer: Callable[[Values, int], Values]) -> Handler:
        return InThread(
            lambda asked: answer(asked.request, asked.header.version), self._answering
        )

    def _while_connected(self, answer: Handler) -> Handler:
        """Send nothing if the client leaves, or the server ends, while it waits."""
        async def handler(
            request: Values, header: RequestHeader, client: Client
        ) -> Values | Parts | None:
            task = asyncio.ensure_future(answer(request, header, client))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_FOR_CLIENT_EVERY)
                if not task.done() and self._answering.is_over(client):
                    return None
            return task.result()

        return handler

    @property
    def _groups(self) -> GroupCoordinator:
        """The group coordinator; imported late, because few clients need it."""
        if self._coordinator is None:
            from kafkastore.server.groups.coordinator import GroupCoordinator

            self._coordinator = GroupCoordinator(self._catalog, self._node, self._state)
        return self._coordinator

    def _of_group(
        self, answer_of: Callable[[GroupCoordinator], Callable[[Values, int], Values]]
    ) -> Handler:
        async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
            await self._groups.load()
            return answer_of(self._groups)(request, header.version)

        return handler

    def _of_offsets(
        self, answer_of: Callable[[GroupCoordinator], Callable[[Values, int], Awaitable[Values]]]
    ) -> Handler:
        async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
            await self._groups.load()
            return await answer_of(self._groups)(request, header.version)

        return handler

    async def _api_versions(
        self, request: Values, header: RequestHeader, client: Client
    ) -> Values:
        if header.version >= _FIRST_VERSION_WITH_SOFTWARE and not is_known_software(request):
            return {"error_code": ErrorCode.INVALID_REQUEST}
        client.software = " ".join(filter(None, (
            request["client_software_name"], request["client_software_version"],
        )))
        return self._reading.api_versions(self._handlers, header.version)

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
        return refuse_produce(request, header.version)

    async def _consumer_group_heartbeat(
        self, request: Values, header: RequestHeader, client: Client
    ) -> Values:
        """Look for new topics and partitions first, which members are to get."""
        await self._groups.load()
        await asyncio.to_thread(self._catalog.follow)
        return self._groups.members.consumer_group_heartbeat(
            request, header.version, header.client_id or "", client.host
        )

    async def _join_group(self, request: Values, header: RequestHeader, client: Client) -> Values:
        await self._groups.load()
        return await self._groups.members.join_group(
            request, header.version, header.client_id or "", client.host
        )

    async def _sync_group(
        self, request: Values, header: RequestHeader, _client: Client
    ) -> Values:
        return await self._groups.members.sync_group(request, header.version)


def _at_once(answer: Callable[[Values, int], Values]) -> Handler:
    async def handler(request: Values, header: RequestHeader, _client: Client) -> Values:
        return answer(request, header.version)

    return handler


_OF_AUTHENTICATION = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_BEFORE_AUTHENTICATION = (ApiKey.API_VERSIONS, *_OF_AUTHENTICATION)
_OF_GROUPS = (
    ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
)
