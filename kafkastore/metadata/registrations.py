"""What a cluster's metadata has: brokers and controllers.

Source: Kafka 4.3.1 ``BrokerRegistration``, ``ControllerRegistration``, ``ConfigResource.Type``,
``SecurityProtocol``, ``ScramMechanism``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class ResourceType(IntEnum):
    """What a configuration belongs to; an empty name is the default of all."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class SecurityProtocol(IntEnum):
    """How clients and servers talk at an endpoint."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class ScramMechanism(IntEnum):
    """The hash of a SCRAM credential."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


#: The names of the numbers in an ACL, by its fields.
#: Source: Kafka 4.3.1 ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType``.
ACL_NAMES: Mapping[str, Mapping[int, str]] = {
    "resource_type": {
        2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN",
        7: "USER",
    },
    "pattern_type": {3: "LITERAL", 4: "PREFIXED"},
    "operation": {
        2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE",
        9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
        13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT",
    },
    "permission_type": {2: "DENY", 3: "ALLOW"},
}


class Endpoint(NamedTuple):
    """A listener of a broker or controller; `security_protocol` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistration(NamedTuple):
    """A registered broker.

    `epoch` is the offset of its registration. `log_dirs` are the ids of its online log directories,
    empty before 3.7. `features` are the levels it supports, both ends inclusive.
    """

    broker_id: int
    epoch: int
    incarnation_id: str | None
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    is_in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]


class ControllerRegistration(NamedTuple):
    """A registered controller (from 3.7)."""

    controller_id: int
    incarnation_id: str | None
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    is_zk_migration_ready: bool
