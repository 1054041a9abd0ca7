"""Errors of requests about groups, and limits of what a server keeps for clients.

Source of the texts: Kafka 4.3.1 ``GroupMetadataManager``, ``GroupCoordinatorService``.
"""

from __future__ import annotations

from kafkastore.formats.primitives.error_codes import ErrorCode

#: Members of one group, those included that have an id and have not joined.
MAX_MEMBERS = 2000
MAX_GROUPS = 10_000
#: What the members of one group of the new protocol subscribe to: each change reads all of it.
MAX_SUBSCRIPTION_BYTES = 16 * 1024 * 1024
#: What all members of all groups sent: subscriptions, assignments, names.
MAX_MEMBER_BYTES = 128 * 1024 * 1024
#: As a broker's ``offset.metadata.max.bytes``, in characters of UTF-16.
MAX_COMMIT_METADATA = 4096
#: Committed offsets of all groups.
MAX_COMMITS = 2_000_000
MAX_REGEX_CHARACTERS = 10_000


class GroupRequestError(Exception):
    """A refused request."""

    def __init__(self, error: ErrorCode, problem: str | None = None) -> None:
        super().__init__(error, problem)
        self.error, self.problem = error, problem
