"""Committed offsets: of the served directories, and since then of this server.

Commits to this server live in memory, and with a `StateDirectory` on its disk before a client is
told that they are kept. Then a commit to this server hides an older or newer one in the
directories. Those that arrive while others are written are written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.paths import describe_error
from kafkastore.server.catalog import Catalog
from kafkastore.server.groups.state_directory import STATE_LOG, Changes, StateDirectory
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError, committed_offsets

Commits = dict[tuple[str, int], OffsetAndMetadata]


class NotKeptError(Exception):
    """A commit that could not be written to the state."""


class _Waiting(NamedTuple):
    changes: list[tuple[OffsetCommitKey, OffsetAndMetadata | None]]
    written: asyncio.Future[None]


class CommittedOffsets:
    """The committed offsets of all groups; for one event loop."""

    def __init__(self, catalog: Catalog, state: StateDirectory | None = None) -> None:
        self._catalog, self._state = catalog, state
        self._loading: asyncio.Future[None] | None = None
        self._by_group: dict[str, Commits] = {}
        #: What clients have committed and deleted, if there is no state that knows it.
        self._changed: dict[OffsetCommitKey, OffsetAndMetadata | None] = {}
        self._thread = ThreadPoolExecutor(1, "kafkastore-state")
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._has_failed = False
        self.count = 0

    async def load(self) -> None:
        """Read what is in the directories and in the state, unless that has been read."""
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.ensure_future(self._load())
        if not loading.done():
            await asyncio.shield(loading)
        loading.result()

    async def _load(self) -> None:
        stored = await asyncio.to_thread(self._stored)
        self._by_group.clear()
        self.count = 0
        self._apply(stored.items())
        if self._state is not None:
            self._state.hidden = stored.keys()
        changed = self._changed if self._state is None else self._state.changes
        self._apply([*changed.items()])

    def _stored(self) -> Changes:
        with suppress(NoCommittedOffsetsError):
            stored = committed_offsets(self._catalog.store, unreadable={})
            return {
                key: commit for key, commit in stored.items()
                if not self._catalog.is_hidden(key.topic)
            }
        return {}

    def forget_stored(self) -> None:
        """Read the offsets in the directories again, at the next request."""
        self._loading = None

    async def positions(self) -> dict[tuple[str, str, int], int]:
        """Return the committed offset of each group, topic and partition."""
        await self.load()
        return {
            (group, *place): commit.offset
            for group, commits in self._by_group.items()
            for place, commit in commits.items()
        }

    @property
    def groups(self) -> Iterable[str]:
        """The groups that have committed offsets."""
        return self._by_group.keys()

    def of(self, group_id: str) -> Commits:
        """Return the offsets of a group."""
        return self._by_group.get(group_id, {})

    async def change(self, changes: Changes) -> None:
        """Keep offsets, or delete them; raise `NotKeptError`."""
        if self._state is None:
            self._changed.update(changes)
            self._apply(changes.items())
            return
        if not changes:
            return
        waiting = _Waiting(
            list(changes.items()), asyncio.get_running_loop().create_future()
        )
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._state))
        await waiting.written

    async def _write(self, state: StateDirectory) -> None:
        """Write what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            changes = [each for waiting in batch for each in waiting.changes]
            failure = None
            try:
                await loop.run_in_executor(self._thread, state.append, changes)
            except (KafkaStoreError, OSError) as error:
                if not self._has_failed:    # then every commit does
                    STATE_LOG.error("commits can't be kept any more: %s", describe_error(error))
                failure, self._has_failed = NotKeptError(), True
            else:
                self._apply(changes)
            for waiting in batch:
                if waiting.written.done():    # the client has gone
                    continue
                if failure is None:
                    waiting.written.set_result(None)
                else:
                    waiting.written.set_exception(failure)
        self._writing = None

    def _apply(
        self, changes: Iterable[tuple[OffsetCommitKey, OffsetAndMetadata | None]]
    ) -> None:
        for key, commit in changes:
            place = key.topic, key.partition
            commits = self._by_group.setdefault(key.group, {})
            self.count -= place in commits
            if commit is None:
                commits.pop(place, None)
            else:
                commits[place] = commit
                self.count += 1
            if not commits:
                del self._by_group[key.group]

    async def close(self) -> None:
        """Wait until everything that clients sent is written."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()
