"""The topics of a cluster, and the replicas of their partitions.

Most records of a metadata log change a partition, so what they do is compiled.

Source: Kafka 4.3.1 ``PartitionRegistration``, ``TopicDelta``.
"""
cimport cython
from libc.stdint cimport int32_t

from kafkastore.metadata.replay_error import ReplayError

NO_LEADER = -1
FIELDS = (
    "replicas", "directories", "isr", "removing_replicas", "adding_replicas", "leader",
    "leader_recovery_state", "leader_epoch", "partition_epoch", "elr", "last_known_elr",
)

cdef enum:
    NO_LEADER_CHANGE = -2
    NO_CHANGE = -1
    RECOVERING = 1


@cython.final
@cython.no_gc
cdef class PartitionRegistration:
    """The replicas of a partition, by broker id, and their state.

    `directories` has the log directory of each replica; None: unknown (before 3.7). `leader` is -1
    if there is none. `elr` and `last_known_elr` are the eligible leader replicas (KIP-966).
    """

    cdef public tuple replicas, directories, isr, removing_replicas, adding_replicas
    cdef public int32_t leader, leader_recovery_state, leader_epoch, partition_epoch
    cdef public tuple elr, last_known_elr

    def __init__(
        self,
        tuple replicas not None=(),
        tuple directories not None=(),
        tuple isr not None=(),
        tuple removing_replicas not None=(),
        tuple adding_replicas not None=(),
        int32_t leader=NO_LEADER,
        int32_t leader_recovery_state=0,
        int32_t leader_epoch=-1,
        int32_t partition_epoch=-1,
        tuple elr not None=(),
        tuple last_known_elr not None=(),
    ):
        self.replicas, self.directories, self.isr = replicas, directories, isr
        self.removing_replicas, self.adding_replicas = removing_replicas, adding_replicas
        self.leader, self.leader_recovery_state = leader, leader_recovery_state
        self.leader_epoch, self.partition_epoch = leader_epoch, partition_epoch
        self.elr, self.last_known_elr = elr, last_known_elr

    def _asdict(self):
        """Return the fields by name, as other registrations do."""
        return {name: getattr(self, name) for name in FIELDS}

    def __eq__(self, other):
        if not isinstance(other, PartitionRegistration):
            return NotImplemented
        return self._asdict() == other._asdict()

    def __repr__(self):
        fields = ", ".join([f"{name}={value!r}" for name, value in self._asdict().items()])
        return f"PartitionRegistration({fields})"


@cython.final
cdef class Topic:
    """A topic: its name, its id, and its partitions by number."""

    cdef public object name, topic_id
    cdef public dict partitions

    def __init__(self, name, topic_id):
        self.name, self.topic_id = name, topic_id
        self.partitions = {}


def create_partition(dict topics_by_id not None, dict record not None):
    """Add a partition by a PartitionRecord."""
    cdef Topic topic = topic_of("PartitionRecord", topics_by_id, record)
    cdef tuple replicas = record["replicas"]
    check_recovery("PartitionRecord", record["leader_recovery_state"])
    check_directories("PartitionRecord", record["directories"], replicas)
    topic.partitions[record["partition_id"]] = PartitionRegistration(
        replicas,
        known_directories("PartitionRecord", record["directories"], replicas),
        record["isr"],
        record["removing_replicas"],
        record["adding_replicas"],
        record["leader"],
        record["leader_recovery_state"],
        record["leader_epoch"],
        record["partition_epoch"],
        record["eligible_leader_replicas"] or (),
        record["last_known_elr"] or (),
    )


def change_partition(dict topics_by_id not None, dict shared not None, dict record not None):
    """Change a partition by a PartitionChangeRecord.

    Equal ids are one object, `shared[ids]`: where each partition has its own, a change frees one
    that is in no cache of the processor, and the next record is read into its place.
    """
    cdef Topic topic = topic_of("PartitionChangeRecord", topics_by_id, record)
    cdef PartitionRegistration partition = topic.partitions.get(record["partition_id"])
    if partition is None:
        raise ReplayError(
            "PartitionChangeRecord",
            f"topic {topic.name} has no partition {record['partition_id']}",
        )
    cdef tuple replicas = record["replicas"]
    cdef tuple directories = record["directories"]
    cdef int32_t number = record["leader_recovery_state"]
    if replicas is not None or directories is not None:
        check_directories("PartitionChangeRecord", directories, replicas)
        directories = known_directories(
            "PartitionChangeRecord",
            partition.directories if directories is None else directories,
            partition.replicas if replicas is None else replicas,
        )
    if number != NO_CHANGE:
        check_recovery("PartitionChangeRecord", number)
        partition.leader_recovery_state = number
    partition.replicas = changed(partition.replicas, replicas, shared)
    partition.directories = changed(partition.directories, directories, shared)
    partition.isr = changed(partition.isr, record["isr"], shared)
    number = record["leader"]
    if number != NO_LEADER_CHANGE:
        partition.leader = number
        partition.leader_epoch += 1
    partition.removing_replicas = changed(
        partition.removing_replicas, record["removing_replicas"], shared
    )
    partition.adding_replicas = changed(
        partition.adding_replicas, record["adding_replicas"], shared
    )
    partition.elr = changed(partition.elr, record["eligible_leader_replicas"], shared)
    partition.last_known_elr = changed(partition.last_known_elr, record["last_known_elr"], shared)
    partition.partition_epoch += 1


cdef inline tuple changed(tuple before, tuple ids, dict shared):
    """Return the ids after a change, shared with equal ones; None changes nothing."""
    return before if ids is None else shared.setdefault(ids, ids)


cdef Topic topic_of(name, dict topics_by_id, dict record):
    """Return the topic that a record changes."""
    cdef Topic topic = topics_by_id.get(record["topic_id"])
    if topic is None:
        raise ReplayError(name, f"no topic has the id {record['topic_id']}")
    return topic


cdef int check_recovery(name, int32_t state) except -1:
    """Raise `ReplayError` for a state that no broker knows."""
    if not 0 <= state <= RECOVERING:
        raise ReplayError(name, f"leader_recovery_state is {state}, which is unknown")
    return 0


cdef int check_directories(name, tuple directories, tuple replicas) except -1:
    """Raise `ReplayError` unless each replica has a directory, or none has."""
    if directories and replicas is not None and len(directories) != len(replicas):
        raise ReplayError(name, f"{len(replicas)} replicas, but {len(directories)} directories")
    return 0


cdef tuple known_directories(name, tuple directories, tuple replicas):
    """Return a directory for each replica: all unknown if none is known."""
    if not any(directories):
        return (None,) * len(replicas)
    check_directories(name, directories, replicas)
    return directories
