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
