"""The group coordinator of a node."""

from __future__ import annotations

from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.groups.committed import CommittedOffsets
from kafkastore.server.groups.describing_groups import DescribingGroups
from kafkastore.server.groups.group_requests import GroupRequests
from kafkastore.server.groups.known_groups import KnownGroups
from kafkastore.server.groups.offset_requests import OffsetRequests
from kafkastore.server.groups.state_directory import StateDirectory


class GroupCoordinator:
    """All groups and the answers about them; for one event loop."""

    def __init__(self, catalog: Catalog, node: Node, state: StateDirectory | None = None) -> None:
        self.groups = KnownGroups(catalog, CommittedOffsets(catalog, state))
        self.members = GroupRequests(self.groups, node)
        self.offsets = OffsetRequests(self.groups)
        self.descriptions = DescribingGroups(self.groups)

    async def load(self) -> None:
        """Read what groups have committed, unless that has been read."""
        await self.groups.offsets.load()

    async def close(self) -> None:
        """End all timers, and keep what clients have committed."""
        self.groups.close()
        await self.groups.offsets.close()
