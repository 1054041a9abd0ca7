"""Requests of chance about a cluster: sound and unsound fields of every kind of reading request."""

from __future__ import annotations

from typing import NamedTuple

from kafkastore.formats.requests.apis import ApiKey

UNKNOWN_ID = "dW5rbm93biB0b3BpYyBpZA"
LARGEST = 2**31 - 1
FIRST_FETCH_WITH_IDS = 13
FIRST_OFFSETS_WITH_IDS = 10


class KnownPartition(NamedTuple):
    """What is true of a partition."""

    start_offset: int
    end_offset: int
    leader_epoch: int


class KnownTopic(NamedTuple):
    """What is true of a topic."""

    topic_id: str
    partitions: dict[int, KnownPartition]


class ChanceRequests:
    """Requests about `topics`, groups and transactional ids; `chance` is a random generator."""

    def __init__(self, chance, topics, groups, transactional_ids, times):
        self.chance, self.topics = chance, topics
        self.groups, self.transactional_ids, self.times = groups, transactional_ids, times
        self._makers = {
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.METADATA: self._metadata,
            ApiKey.OFFSET_FETCH: self._offset_fetch,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.JOIN_GROUP: self._join_group,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave_group,
            ApiKey.SYNC_GROUP: self._sync_group,
            ApiKey.DESCRIBE_GROUPS: self._describe_groups,
            ApiKey.LIST_GROUPS: self._list_groups,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._offset_for_leader_epoch,
            ApiKey.DESCRIBE_ACLS: self._describe_acls,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.DESCRIBE_LOG_DIRS: self._describe_log_dirs,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_PRODUCERS: self._describe_producers,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self._list_transactions,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe_topic_partitions,
        }

    def keys(self):
        """Return the kinds of requests."""
        return self._makers.keys()

    def request(self, key, version):
        """Return the fields of a request."""
        return self._makers[key](version)

    # Parts

    def _one(self, *values):
        return self.chance.choice(values)

    def _rarely(self, value, usual):
        return value if self.chance.random() < 0.15 else usual

    def _sample(self, values, most=3):
        values = list(values)
        return self.chance.sample(values, self.chance.randint(0, min(most, len(values))))

    def _name(self):
        return self._one(*self.topics, *self.topics, "missing", self._one("", "no such/name", "."))

    def _topic_id(self):
        known = [topic.topic_id for topic in self.topics.values()]
        return self._one(*known, *known, UNKNOWN_ID)

    def _rows(self, make, *, by_id=False, name="name", rows="partitions"):
        """Return topics with rows that `make` makes of a partition's number and what is known."""
        found = []
        for _ in range(self.chance.randint(0, 3)):
            chosen = self._topic_id() if by_id else self._name()
            if any(each["topic_id" if by_id else name] == chosen for each in found):
                continue    # no topic twice: a broker orders or merges such rows by chance
            known = next(
                (each for topic, each in self.topics.items()
                 if chosen == (each.topic_id if by_id else topic)),
                KnownTopic(UNKNOWN_ID, {}),
            )
            numbers = self._sample([*known.partitions, len(known.partitions), -1])
            found.append({
                "topic_id" if by_id else name: chosen,
                rows: [
                    make(number, known.partitions.get(number, KnownPartition(0, 9, 0)))
                    for number in numbers
                ],
            })
        return found

    def _epoch(self, known):
        return self._one(-1, -1, known.leader_epoch, known.leader_epoch, *range(-2, 6), 99)

    def _offset(self, known):
        inside = self.chance.randint(known.start_offset, max(known.end_offset, known.start_offset))
        return self._one(
            known.start_offset, inside, inside, inside, inside, known.end_offset,
            known.start_offset - 1, known.end_offset + 1, 0, -1, -2, 2**62,
        )

    def _time(self):
        special = self._one(*range(-8, 2), *range(-3, 0), 2**62)
        return self._one(special, self._one(*self.times))

    def _group(self):
        return self._one(*self.groups, "nobody", "")

    # Records and offsets

    def _fetch(self, version):
        sizes = (LARGEST, LARGEST, 1, 0, 90, 300, 2000)

        def row(number, known):
            return {
                "partition": number,
                "current_leader_epoch": self._epoch(known) if version >= 9 else -1,
                "fetch_offset": self._offset(known),
                "last_fetched_epoch": self._rarely(self._epoch(known), -1) if version >= 12 else -1,
                "partition_max_bytes": self._rarely(-1, self._one(*sizes)),
            }

        by_id = version >= FIRST_FETCH_WITH_IDS
        return {
            "max_wait_ms": 0,
            "min_bytes": self._one(0, 1, LARGEST),
            "max_bytes": self._one(*sizes),
            "isolation_level": self._one(0, 1),
            "topics": self._rows(row, by_id=by_id, name="topic"),
        }

    def _list_offsets(self, version):
        def row(number, known):
            return {
                "partition_index": number,
                "current_leader_epoch": self._epoch(known),
                "timestamp": self._time(),
            }

        return {
            "replica_id": self._one(-1, -1, -2, 99),
            "isolation_level": self._one(0, 1) if version >= 2 else 0,
            "topics": self._rows(row),
            "timeout_ms": 1000,
        }

    def _offset_for_leader_epoch(self, version):
        def row(number, known):
            return {
                "partition": number,
                "current_leader_epoch": self._epoch(known),
                "leader_epoch": self._epoch(known),
            }

        return {"replica_id": -1, "topics": self._rows(row, name="topic")}

    # Topics and the cluster

    def _metadata(self, version):
        fields = {
            "allow_auto_topic_creation": version < 4,    # a field since 4
            "include_cluster_authorized_operations": 8 <= version <= 10 and self._one(False, True),
            "include_topic_authorized_operations": version >= 8 and self._one(False, True),
        }
        if version == 0 or self.chance.random() < 0.2:
            return fields | {"topics": None if version and self._one(0, 1) else ()}
        if version >= 10 and self.chance.random() < 0.4:
            ids = {self._topic_id() for _ in range(self.chance.randint(1, 3))}
            return fields | {"topics": [{"topic_id": each, "name": None} for each in sorted(ids)]}
        names = {self._name() for _ in range(self.chance.randint(1, 4))}
        return fields | {"topics": [{"name": each} for each in sorted(names)]}

    def _describe_topic_partitions(self, version):
        names = sorted({self._name() for _ in range(self.chance.randint(0, 3))} - {""})
        cursor = {"topic_name": self._name(), "partition_index": self._one(0, 1, 2, -1)}
        return {
            "topics": [{"name": each} for each in names],
            "response_partition_limit": self._one(2000, 2000, 1, 2, 3, 0),
            "cursor": self._rarely(cursor, None),
        }

    def _describe_cluster(self, version):
        return {
            "include_cluster_authorized_operations": self._one(False, True),
            "endpoint_type": self._one(1, 1, 2, 3) if version else 1,
        }

    def _describe_configs(self, version):
        kind = self._one(2, 2, 2, 2, 1, 4, 8, 16, 32, 99)
        names = {
            2: [*self.topics, "missing", "", "no such/name"], 4: ["1", "99", "", "one"],
            8: ["1", "one"], 16: ["", "some"], 32: self.groups,
        }.get(kind, ["some"])
        keys = ["retention.ms", "cleanup.policy", "segment.bytes", "unknown.key"]
        return {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": self._one(*names),
                    "configuration_keys": self._one(None, self._sample(keys)),
                }
            ],
            "include_synonyms": self._one(False, True),
            "include_documentation": False,
        }

    def _describe_log_dirs(self, version):
        topics = self._rows(lambda number, known: number, name="topic")
        return {"topics": self._one(None, topics, topics)}

    def _describe_acls(self, version):
        return {
            "resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1,
            "permission_type": 1,
        }

    # Producers

    def _describe_producers(self, version):
        return {"topics": self._rows(lambda number, known: number, rows="partition_indexes")}

    def _describe_transactions(self, version):
        known = [*self.transactional_ids, "nobody", ""]
        return {"transactional_ids": self._sample(known)}

    def _list_transactions(self, version):
        states = ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "nothing", "ongoing"]
        fields = {
            "state_filters": self._rarely(self._sample(states), []),
            "producer_id_filters": self._rarely(self._sample(range(-1, 4)), []),
        }
        if version >= 1:
            fields["duration_filter"] = self._one(-1, -1, 0, 10**9)
        if version >= 2:
            fields["transactional_id_pattern"] = self._one(None, None, "", "o.*", "a", "(", ".*ed")
        return fields

    # Groups

    def _find_coordinator(self, version):
        fields = {"key_type": self._one(0, 0, 1, 2, 3) if version else 0}
        keys = [self._group() for _ in range(self.chance.randint(1, 3))]
        return fields | ({"coordinator_keys": keys} if version >= 4 else {"key": keys[0]})

    def _offset_fetch(self, version):
        if version < 8:
            topics = self._rows(lambda number, known: number, rows="partition_indexes")
            fields = {
                "group_id": self._group(), "topics": self._rarely(None, topics),
            }
            if version < 2:
                fields["topics"] = topics
            return fields
        groups = []
        for group in sorted({self._group() for _ in range(self.chance.randint(1, 2))}):
            topics = self._rows(
                lambda number, known: number, by_id=version >= FIRST_OFFSETS_WITH_IDS,
                rows="partition_indexes",
            )
            groups.append({"group_id": group, "topics": self._one(None, topics, topics)})
        return {"groups": groups, "require_stable": self._one(False, True)}

    def _join_group(self, version):
        """Return a request that no group lets in."""
        return {
            "group_id": self._group(), "session_timeout_ms": self._one(30_000, LARGEST),
            "rebalance_timeout_ms": 1000, "member_id": self._one("stranger", "other"),
            "protocol_type": self._one("consumer", "", "connect"),
            "protocols": self._one([], [{"name": "range", "metadata": b""}]),
        }

    def _member(self, version, **fields):
        return fields | {
            "group_id": self._group(), "member_id": self._one("", "stranger"),
            "generation_id": self._one(-1, 0, 1),
        }

    def _heartbeat(self, version):
        return self._member(version)

    def _sync_group(self, version):
        protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        return self._member(version, assignments=[], **protocol)

    def _leave_group(self, version):
        if version < 3:
            return {"group_id": self._group(), "member_id": "stranger"}
        members = [{"member_id": each} for each in self._sample(["", "stranger", "other"])]
        return {"group_id": self._group(), "members": members}

    def _describe_groups(self, version):
        fields = {"groups": self._sample([*self.groups, "nobody", ""])}
        if version >= 3:
            fields["include_authorized_operations"] = self._one(False, True)
        return fields

    def _list_groups(self, version):
        states = ["Empty", "empty", "Dead", "Stable", "PreparingRebalance", "unknown"]
        fields = {}
        if version >= 4:
            fields["states_filter"] = self._sample(states)
        if version >= 5:
            fields["types_filter"] = self._sample(["classic", "Classic", "consumer", "unknown"])
        return fields
