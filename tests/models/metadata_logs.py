"""Random metadata logs: records as controllers write them, and some that do not fit the others.

The seed determines the logs: every choice is made by `random.Random`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from models.internal_topics import pack_frame
from models.kafka_definitions import common, definitions

from kafkastore.formats.topics.cluster_metadata import METADATA_VERSION, RECORDS

BROKERS = (0, 1, 2, 3, 1000, 2**31 - 1)
NAMES = ("", "a", "b", "é\u20ac", "__consumer_offsets", 130 * "x")
IDS = (
    "2P-XnPKnTZG5NwujU8kn6Q", "____________________-w", 21 * "A" + "Q", 21 * "A" + "g",
    "9mJPdp7VS-ykmNkaEelaiA", "JVTDxPaeQEaMo0x0gtQYTw", "zFzEqKdmSIaVzZE9-d2dOQ",
)
NO_ID = "bm9uZSBoYXMgdGhpcyBpZA"
FEATURES = (
    "transaction.version", "eligible.leader.replicas.version", "share.version", "kraft.version",
)
#: The levels of ``metadata.version`` that a broker knows.
LEVELS = {"3.9.1": (1, 23), "4.1.1": (7, 27), "4.3.1": (7, 31)}
#: The types of resources that a broker knows; it takes others as one.
RESOURCE_TYPES = {"3.9.1": (2, 4, 8, 16), "4.1.1": (2, 4, 8, 16, 32), "4.3.1": (2, 4, 8, 16, 32)}
NUMBERS = {description.name: number for number, description in RECORDS.descriptions.items()}


class Record(NamedTuple):
    """A record of a metadata log; fields that are left out have their default."""

    name: str
    version: int
    fields: dict[str, Any]

    @property
    def number(self) -> int:
        return NUMBERS[self.name + "Record"]

    @property
    def frame(self) -> bytes:
        return pack_frame(RECORDS, self.number, self.version, **self.fields)


class _Partition(NamedTuple):
    """What decides which changes fit a partition."""

    count: int
    has_directories: bool


class _Topic(NamedTuple):
    name: str
    partitions: dict[int, _Partition]


class _Writer:
    """Writes one log record by record."""

    def __init__(self, chance: random.Random, broker: str) -> None:
        self.chance, self.broker = chance, broker
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.topics: dict[str, _Topic] = {}
        self.acls: set[str | None] = set()

    def records(self, count: int, misfits: float) -> list[Record]:
        """A log, which begins with its ``metadata.version``."""
        found = [self.metadata_version()]
        while len(found) < count:
            self.offset = len(found)
            kinds = MISFITS if self.chance.random() < misfits else KINDS
            written = self.chance.choice(kinds)(self)
            if written is not None:
                found.append(written)
        return found

    # Values

    def some(self, things: Sequence[Any], most: int) -> tuple[Any, ...]:
        return tuple(self.chance.sample(things, self.chance.randint(0, most)))

    def is_chosen(self) -> bool:
        return self.chance.random() < 0.5

    def replicas(self, count: int | None = None) -> tuple[int, ...]:
        return tuple(self.chance.sample(BROKERS, count or self.chance.randint(1, 4)))

    def some_id(self) -> str | None:
        return self.chance.choice((None, *IDS))

    def directories(self, count: int) -> tuple[str | None, ...]:
        return tuple(self.some_id() for _ in range(count))

    def endpoints(self) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "name": self.chance.choice(NAMES[1:]),
                "host": self.chance.choice(NAMES),
                "port": self.chance.choice((0, 9092, 2**16 - 1)),
                "security_protocol": self.chance.randint(0, 3),
            }
            for _ in range(self.chance.randint(0, 3))
        )

    def features(self) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "name": name,
                "min_supported_version": self.chance.randint(0, 3),
                "max_supported_version": self.chance.choice((3, 27, 2**15 - 1)),
            }
            for name in self.some((METADATA_VERSION, *FEATURES), 3)
        )

    def version(self, name: str) -> int | None:
        """A version of a record that both sides know; None if this broker does not know it."""
        theirs = definitions(self.broker).get(name + "Record")
        if theirs is None:
            return None
        ours = RECORDS.descriptions[NUMBERS[name + "Record"]]
        return self.chance.randint(*common(ours.versions, theirs.versions))

    def record(self, name: str, /, **fields: Any) -> Record | None:
        """A record in some version, with the fields that this has."""
        version = self.version(name)
        return None if version is None else _record(name, version, fields)

    # Records that fit

    def metadata_version(self) -> Record | None:
        level = self.chance.randint(*LEVELS[self.broker])
        return self.record("FeatureLevel", name=METADATA_VERSION, feature_level=level)

    def feature(self) -> Record | None:
        level = self.chance.choice((0, 0, 1, 2, 300))
        return self.record(
            "FeatureLevel", name=self.chance.choice(FEATURES), feature_level=level
        )

    def register_broker(self) -> Record | None:
        broker_id = self.chance.choice(BROKERS)
        self.epochs[broker_id] = self.offset
        return self.record(
            "RegisterBroker",
            broker_id=broker_id,
            broker_epoch=self.offset,
            incarnation_id=self.some_id(),
            end_points=self.endpoints(),
            features=self.features(),
            rack=self.chance.choice((None, *NAMES)),
            fenced=self.is_chosen(),
            in_controlled_shutdown=self.is_chosen(),
            is_migrating_zk_broker=self.is_chosen(),
            log_dirs=self.directories(self.chance.randint(0, 3)),
            cordoned_log_dirs=self.chance.choice((None, (), self.directories(2))),
        )

    def unregister_broker(self) -> Record | None:
        broker_id = self.chance.choice(BROKERS)
        self.epochs.pop(broker_id, None)
        return self.record("UnregisterBroker", broker_id=broker_id, broker_epoch=self.offset)

    def fence_broker(self) -> Record | None:
        if not self.epochs:
            return None
        broker_id, epoch = self.chance.choice(sorted(self.epochs.items()))
        kind = self.chance.choice(("FenceBroker", "UnfenceBroker"))
        return self.record(kind, id=broker_id, epoch=epoch)

    def change_broker(self) -> Record | None:
        if not self.epochs:
            return None
        broker_id, epoch = self.chance.choice(sorted(self.epochs.items()))
        return self.record(
            "BrokerRegistrationChange",
            broker_id=broker_id,
            broker_epoch=epoch,
            fenced=self.chance.randint(-1, 1),
            in_controlled_shutdown=self.chance.randint(0, 1),
            log_dirs=self.directories(self.chance.randint(0, 3)),
            cordoned_log_dirs=self.chance.choice((None, (), self.directories(2))),
        )

    def register_controller(self) -> Record | None:
        return self.record(
            "RegisterController",
            controller_id=self.chance.choice(BROKERS),
            incarnation_id=self.some_id(),
            zk_migration_ready=self.is_chosen(),
            end_points=self.endpoints(),
            features=self.features(),
        )

    def unregister_controller(self) -> Record | None:
        return self.record("UnregisterController", controller_id=self.chance.choice(BROKERS))

    def create_topic(self) -> Record | None:
        """A name is that of one topic at a time; the same topic again loses its partitions."""
        names = {topic.name: topic_id for topic_id, topic in self.topics.items()}
        name = self.chance.choice(NAMES[1:])
        topic_id = names.get(name)
        if topic_id is None:
            free = [each for each in IDS if each not in self.topics]
            topic_id = self.chance.choice(free)
        self.topics[topic_id] = _Topic(name, {})
        return self.record("Topic", name=name, topic_id=topic_id)

    def remove_topic(self) -> Record | None:
        if not self.topics:
            return None
        topic_id = self.chance.choice(sorted(self.topics))
        del self.topics[topic_id]
        return self.record("RemoveTopic", topic_id=topic_id)

    def create_partition(self) -> Record | None:
        if not self.topics:
            return None
        topic_id, topic = self.chance.choice(sorted(self.topics.items()))
        number = self.chance.randrange(4)
        fields = self.partition_fields()
        count = len(fields["replicas"])
        fields["directories"] = self.chance.choice(
            ((), (None,) * count, self.directories(count), self.directories(count))
        )
        written = self.record("Partition", partition_id=number, topic_id=topic_id, **fields)
        has_directories = any(written.fields.get("directories", ()))
        topic.partitions[number] = _Partition(count, has_directories)
        return written

    def partition_fields(self) -> dict[str, Any]:
        return {
            "replicas": self.replicas(),
            "isr": self.some(BROKERS, 3),
            "removing_replicas": self.some(BROKERS, 2),
            "adding_replicas": self.some(BROKERS, 2),
            "leader": self.chance.choice((-1, *BROKERS)),
            "leader_recovery_state": self.chance.randint(0, 1),
            "leader_epoch": self.chance.randrange(5),
            "partition_epoch": self.chance.randrange(5),
            "eligible_leader_replicas": self.chance.choice((None, (), self.some(BROKERS, 2))),
            "last_known_elr": self.chance.choice((None, (), self.some(BROKERS, 2))),
        }

    def some_partition(self) -> tuple[str, int, _Partition] | None:
        found = [
            (topic_id, number, partition)
            for topic_id, topic in sorted(self.topics.items())
            for number, partition in sorted(topic.partitions.items())
        ]
        return self.chance.choice(found) if found else None

    def change_partition(self) -> Record | None:
        chosen = self.some_partition()
        if chosen is None:
            return None
        topic_id, number, (count, has_directories) = chosen
        version = self.version("PartitionChange")
        share = self.chance.choice((0.1, 0.3, 0.7))
        fields = {
            name: value for name, value in self.partition_fields().items()
            if name not in ("leader_epoch", "partition_epoch") and self.chance.random() < share
        }
        if "replicas" in fields:
            count_after = len(fields["replicas"])
            if count_after != count and has_directories and version < 1:
                del fields["replicas"]
            else:
                if count_after != count and has_directories:
                    fields["directories"] = self.chance.choice(((), self.directories(count_after)))
                count = count_after
        if "directories" not in fields and version > 0 and self.chance.random() < share:
            fields["directories"] = self.chance.choice(
                ((), (None,) * count, self.directories(count))
            )
        if "directories" in fields:
            has_directories = any(fields["directories"])
        self.topics[topic_id].partitions[number] = _Partition(count, has_directories)
        fields |= {"partition_id": number, "topic_id": topic_id}
        return _record("PartitionChange", version, fields)

    def clear_elr(self) -> Record | None:
        names = [topic.name for topic in self.topics.values()]
        return self.record("ClearElr", topic_name=self.chance.choice(["", *names]))

    def configure(self) -> Record | None:
        return self.record(
            "Config",
            resource_type=self.chance.choice(RESOURCE_TYPES[self.broker]),
            resource_name=self.chance.choice(("0", *NAMES)),
            name=self.chance.choice(NAMES[:3]),
            value=self.chance.choice((None, None, "", "1", "é", 300 * "v")),
        )

    def configure_topic(self) -> Record | None:
        """So that topics that are removed have configurations."""
        if not self.topics:
            return None
        written = self.configure()
        topic = self.chance.choice([topic for _, topic in sorted(self.topics.items())])
        return written._replace(
            fields=written.fields | {"resource_type": 2, "resource_name": topic.name}
        )

    def set_quota(self) -> Record | None:
        types = list(self.some(("user", "client-id", "ip"), 2))
        entity = tuple(
            {"entity_type": each, "entity_name": self.chance.choice((None, "", "a"))}
            for each in types
        )
        return self.record(
            "ClientQuota",
            entity=entity,
            key=self.chance.choice(("producer_byte_rate", "request_percentage")),
            value=self.chance.choice((0.0, -1.5, 1e300, float("inf"))),
            remove=self.is_chosen(),
        )

    def set_acl(self) -> Record | None:
        acl_id = self.some_id()
        self.acls.add(acl_id)
        return self.record(
            "AccessControlEntry",
            id=acl_id,
            resource_type=self.chance.randint(1, 7),
            resource_name=self.chance.choice(NAMES),
            pattern_type=self.chance.randint(1, 4),
            principal=self.chance.choice(("User:a", "User:*", "x")),
            host=self.chance.choice(NAMES),
            operation=self.chance.randint(1, 14),
            permission_type=self.chance.randint(1, 3),
        )

    def remove_acl(self) -> Record | None:
        if not self.acls:
            return None
        acl_id = self.chance.choice(sorted(self.acls, key=str))
        self.acls.remove(acl_id)
        return self.record("RemoveAccessControlEntry", id=acl_id)

    def set_scram(self) -> Record | None:
        return self.record(
            "UserScramCredential",
            name=self.chance.choice(NAMES),
            mechanism=self.chance.randint(1, 2),
            salt=self.chance.randbytes(3),
            stored_key=self.chance.randbytes(4),
            server_key=b"",
            iterations=self.chance.choice((0, 4096, 2**31 - 1)),
        )

    def remove_scram(self) -> Record | None:
        return self.record(
            "RemoveUserScramCredential",
            name=self.chance.choice(NAMES),
            mechanism=self.chance.randint(1, 2),
        )

    def set_token(self) -> Record | None:
        principals = ("User:a", "User:", ":b", "User:é:c")
        return self.record(
            "DelegationToken",
            owner=self.chance.choice(principals),
            requester=self.chance.choice(principals),
            renewers=self.some(principals, 3),
            issue_timestamp=self.offset,
            max_timestamp=2**63 - 1,
            expiration_timestamp=-1,
            token_id=self.chance.choice(NAMES),
        )

    def remove_token(self) -> Record | None:
        return self.record("RemoveDelegationToken", token_id=self.chance.choice(NAMES))

    def set_producer_ids(self) -> Record | None:
        return self.record(
            "ProducerIds",
            broker_id=self.chance.choice(BROKERS),
            broker_epoch=self.offset,
            next_producer_id=self.chance.choice((0, 1000, 2**63 - 1)),
        )

    def set_zk_migration_state(self) -> Record | None:
        return self.record("ZkMigrationState", zk_migration_state=self.chance.randint(0, 4))

    def no_op(self) -> Record | None:
        return self.record("NoOp")

    # Records that do not fit

    def unknown_broker(self) -> Record | None:
        """One that is not registered, or was before."""
        written = self.chance.choice((_Writer.fence_broker, _Writer.change_broker))(self)
        if written is None:
            return None
        broker_id, epoch = (
            ("broker_id", "broker_epoch") if "broker_id" in written.fields else ("id", "epoch")
        )
        wrong = self.chance.choice(({broker_id: 77}, {epoch: written.fields[epoch] - 1}))
        return written._replace(fields=written.fields | wrong)

    def unknown_change_of_broker(self) -> Record | None:
        written = self.change_broker()
        if written is None:
            return None
        name, values = self.chance.choice(
            (("fenced", (-2, 2)), ("in_controlled_shutdown", (-1, 2)))
        )
        if name not in written.fields:
            return None
        return written._replace(fields=written.fields | {name: self.chance.choice(values)})

    def unknown_security_protocol(self) -> Record | None:
        written = self.register_controller()
        endpoint = {"name": "a", "host": "", "port": 1, "security_protocol": 4}
        return written._replace(fields=written.fields | {"end_points": (endpoint,)})

    def unknown_topic(self) -> Record | None:
        kind = self.chance.choice(("RemoveTopic", "Partition", "PartitionChange"))
        fields = self.partition_fields() if kind == "Partition" else {}
        if kind != "RemoveTopic":
            fields["partition_id"] = 0
        return self.record(kind, topic_id=NO_ID, **fields)

    def unknown_partition(self) -> Record | None:
        if not self.topics:
            return None
        topic_id = self.chance.choice(sorted(self.topics))
        return self.record("PartitionChange", partition_id=4, topic_id=topic_id, leader=1)

    def wrong_partition(self) -> Record | None:
        """One with too many or too few directories, or in an unknown state."""
        if not self.topics:
            return None
        topic_id = self.chance.choice(sorted(self.topics))
        fields = self.partition_fields()
        version = self.version("Partition")
        if version > 0 and self.is_chosen():
            fields["directories"] = self.chance.choice(((None,), ("A" * 21 + "Q",))) * (
                len(fields["replicas"]) + self.chance.choice((-1, 1))
            )
            if not fields["directories"]:
                return None
        else:
            fields["leader_recovery_state"] = self.chance.choice((-1, 2))
        fields |= {"partition_id": self.chance.randrange(4), "topic_id": topic_id}
        return _record("Partition", version, fields)

    def wrong_change_of_partition(self) -> Record | None:
        """One after which the numbers of directories and replicas differ, or an unknown state."""
        chosen = self.some_partition()
        if chosen is None:
            return None
        topic_id, number, (count, has_directories) = chosen
        fields: dict[str, Any] = {"partition_id": number, "topic_id": topic_id, "leader": 1}
        version = self.version("PartitionChange")
        kind = self.chance.choice(("state", "replicas", "directories", "both"))
        if kind == "state":
            fields["leader_recovery_state"] = self.chance.choice((-2, 2))
        elif kind == "replicas" and has_directories:
            fields["replicas"] = BROKERS[: count + 1]
        elif kind == "directories" and version > 0:
            fields["directories"] = (IDS[0],) * (count + 1)
        elif kind == "both" and version > 0:
            fields["replicas"] = BROKERS[:3]
            fields["directories"] = self.chance.choice((None, IDS[0])), None
        else:
            return None
        return _record("PartitionChange", version, fields)

    def unknown_name(self) -> Record | None:
        return self.record("ClearElr", topic_name="no topic has this name")

    def unknown_acl(self) -> Record | None:
        return self.record("RemoveAccessControlEntry", id=NO_ID)

    def unknown_migration_state(self) -> Record | None:
        """A broker without ZooKeeper ignores the record."""
        if self.broker != "3.9.1":
            return None
        return self.record("ZkMigrationState", zk_migration_state=self.chance.choice((-1, 5)))

    def no_principal(self) -> Record | None:
        written = self.set_token()
        name, value = self.chance.choice(
            (("owner", ""), ("owner", "a"), ("requester", "a"), ("renewers", ("User:a", "a")))
        )
        return written._replace(fields=written.fields | {name: value})


def _record(name: str, version: int, fields: dict[str, Any]) -> Record:
    description = RECORDS.descriptions[NUMBERS[name + "Record"]]
    known = {field.name for field in description.fields if version in field.versions}
    return Record(name, version, {key: value for key, value in fields.items() if key in known})


#: Those that change most come several times.
KINDS = (
    *4 * (_Writer.change_partition, _Writer.create_partition),
    *3 * (_Writer.register_broker, _Writer.change_broker, _Writer.create_topic, _Writer.configure),
    *2 * (_Writer.fence_broker, _Writer.set_quota, _Writer.clear_elr, _Writer.configure_topic),
    *2 * (_Writer.set_acl, _Writer.remove_topic, _Writer.register_controller),
    _Writer.metadata_version,
    _Writer.feature,
    _Writer.unregister_broker,
    _Writer.unregister_controller,
    _Writer.remove_acl,
    _Writer.set_scram,
    _Writer.remove_scram,
    _Writer.set_token,
    _Writer.remove_token,
    _Writer.set_producer_ids,
    _Writer.set_zk_migration_state,
    _Writer.no_op,
)
MISFITS = (
    _Writer.unknown_broker,
    _Writer.unknown_change_of_broker,
    _Writer.unknown_security_protocol,
    _Writer.unknown_topic,
    _Writer.unknown_partition,
    _Writer.wrong_partition,
    _Writer.wrong_change_of_partition,
    _Writer.unknown_name,
    _Writer.unknown_acl,
    _Writer.unknown_migration_state,
    _Writer.no_principal,
)


def random_log(chance: random.Random, broker: str) -> list[Record]:
    """A log of records that a broker knows."""
    count = chance.choice((2, 10, 30, 60, 120))
    return _Writer(chance, broker).records(count, chance.choice((0, 0.05, 0.2)))
