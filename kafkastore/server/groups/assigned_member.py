"""What an assignor knows of a member."""

from __future__ import annotations

from typing import NamedTuple

Place = tuple[str, int]
"""A topic id and a partition."""
Assignment = frozenset[Place]


class AssignedMember(NamedTuple):
    """A member, its subscribed topic ids, and its partitions up to now."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[str]
    assigned: Assignment
