"""What a broker answered about its groups, and what a directory shows of them, in one form."""
from __future__ import annotations

import base64
import json
import re
import struct

import kafkastore
from kafkastore.use_cases.groups import GroupType
from kafkastore.use_cases.share_states import DeliveryState, StateBatch, combine

# The broker's own assignors, where members name none; no record has them.
DEFAULT_ASSIGNOR = {"consumer": "uniform", "share": "simple"}
NO_OFFSET = -1
# What `Answers` and `Read` show in the same form.
FORMS = (
    "groups", "epochs_and_assignors", "offsets", "printed_lag", "share_offsets", "share_states",
    "bounds",
)
COMPLETE = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class Answers:
    """The answers of a case of the part ``groups``; each method has the form of one of `Read`."""

    def __init__(self, case):
        self._said = json.loads((case / "groups.json").read_text())
        self.is_4_1 = json.loads((case / "answers.json").read_text())["kafka"].startswith("4.1.")

    def groups(self):
        return listed(self._said)

    def groups_after_load(self):
        return listed(self._said["after_load"])

    def epochs_and_assignors(self):
        return {
            name: (each["groupEpoch"], self._assignment_epoch(each), each.get("assignorName"))
            if "groupEpoch" in each
            else (None, None, each["protocolData"] or None)
            for name, each in self._said["described"].items()
        }

    def _assignment_epoch(self, group):
        # Coordinators of 4.3 begin with 1, and write nothing down until there is an assignment.
        has_none = not self.is_4_1 and group["groupState"] == "NotReady"
        return None if has_none and group["assignmentEpoch"] == 1 else group["assignmentEpoch"]

    def members(self):
        return {
            (name, member["memberId"]): self._member(member)
            for name, each in self._said["described"].items()
            for member in each["members"]
        }

    def _member(self, member):
        identity = (member["clientId"], member["clientHost"])
        if "memberMetadata" in member:
            subscribed = protocol_topics(member["memberMetadata"], has_partitions=False)
            assigned = protocol_topics(member["memberAssignment"], has_partitions=True)
            return (*identity, member["groupInstanceId"], None, None, set(subscribed), None,
                    assigned, assigned)
        assigned = partitions_or_tasks(member["assignment"])
        target = partitions_or_tasks(member.get("targetAssignment"))
        return (
            *identity, member.get("instanceId"), member["rackId"], member["memberEpoch"],
            set(member.get("subscribedTopicNames", ())), member.get("subscribedTopicRegex") or None,
            assigned, target,
        )

    def offsets(self):
        return fetched(self._said)

    def offsets_after_load(self):
        return fetched(self._said["after_load"])

    def printed_lag(self):
        """Groups with commits: ``kafka-consumer-groups.sh --describe``."""
        return {
            (group, topic, int(partition)): tuple(map(int, numbers))
            for group, topic, partition, *numbers in self._rows(
                "consumer-offsets", r"(\S+) +(\S+) +(\d+) +(\d+) +(\d+) +(-?\d+) .*"
            )
        }

    def printed_streams_lag(self):
        return {
            (group, topic, int(partition)): int(lag)
            for group, topic, partition, lag in self._rows(
                "streams-offsets", r"(\S+) +(\S+) +(\d+) +(\d+)"
            )
        }

    def printed_share_lag(self):
        """``kafka-share-groups.sh --describe``, of 4.1 without lag."""
        return {
            (row[0], row[1], int(row[2])): tuple(
                None if each == "-" else int(each) for each in row[3:] if each
            )
            for row in self._rows("share-offsets", r"(\S+) +(\S+) +(\d+) +(\d+|-)(?: +(\d+|-))?")
        }

    def _rows(self, tool, pattern):
        for line in self._said["tools"][tool].splitlines():
            if (found := re.fullmatch(pattern, line.rstrip())) is not None:
                yield [each or "" for each in found.groups()]

    def share_offsets(self):
        return {
            (group, topic["topicName"], each["partitionIndex"]): (
                topic["topicId"],
                None if each["startOffset"] == NO_OFFSET else each["startOffset"],
                each["leaderEpoch"],
            )
            for group, said in self._said["share"].items()
            for topic in said["offsets"]
            for each in topic["partitions"]
        }

    def share_states(self):
        return {
            (group, *split(partition)): (
                each["stateEpoch"],
                list(combine(
                    StateBatch(
                        batch["firstOffset"], batch["lastOffset"], batch["deliveryState"],
                        batch["deliveryCount"],
                    )
                    for batch in each["stateBatches"]
                )),
            )
            for group, said in self._said["share"].items()
            for partition, each in said["states"].items()
        }

    def bounds(self):
        return {
            split(name): (each["start"], each["end"])
            for name, each in self._said["log_ends"].items()
        }


class Read:
    """The same of the log directory of a case."""

    def __init__(self, case):
        self.store = kafkastore.open(case / "logs")
        self._groups = [group for found in kafkastore.groups(self.store) for group in found]
        self.lag = list(kafkastore.lag(self.store))
        self.share_lag = list(kafkastore.share_lag(self.store))

    def groups(self):
        return {
            each.group: (each.type.value, each.state.value, each.protocol_type)
            for each in self._groups
        }

    def epochs_and_assignors(self):
        return {
            each.group: (
                None if each.type is GroupType.CLASSIC else each.epoch,
                each.assignment_epoch,
                each.protocol or DEFAULT_ASSIGNOR.get(each.type.value),
            )
            for each in self._groups
        }

    def members(self):
        return {
            (group.group, each.member_id): (
                each.client_id, each.client_host, each.instance_id, each.rack_id, each.epoch,
                set(each.subscribed), each.subscribed_regex, assigned(each.assigned),
                {} if group.type is GroupType.SHARE else assigned(each.target),
            )
            for group in self._groups
            for each in group.members
        }

    def offsets(self):
        return {
            tuple(key): (each.offset, each.leader_epoch, each.metadata)
            for group in self._groups
            for key, each in group.offsets.items()
        }

    def printed_lag(self):
        streams = {each.group for each in self._groups if each.type is GroupType.STREAMS}
        return {
            (each.group, *each.topic_partition): (
                each.committed.offset, each.log_end_offset, each.offsets
            )
            for each in self.lag
            if each.group not in streams
        }

    def share_offsets(self):
        return {
            (each.group, *each.topic_partition): (
                each.topic_id, each.state.start_offset, each.state.leader_epoch
            )
            for each in self.share_lag
            if each.topic_partition is not None
        }

    def share_states(self):
        return {
            (each.group, *each.topic_partition): (each.state.state_epoch, list(each.state.batches))
            for each in self.share_lag
            if each.topic_partition is not None
        }

    def bounds(self):
        return {
            tuple(each): (
                self.store.partitions[each].log_start_offset,
                self.store.partitions[each].log_end_offset,
            )
            for each in self.store.partitions
            if not each.topic.startswith("__")
        }


def listed(said):
    """Type, state and kind of members by group."""
    return {
        each["groupId"]: (
            each["groupType"].lower(),
            re.sub("(?<=[a-z])(?=[A-Z])", "-", each["groupState"]).lower(),
            each["protocolType"] or None,
        )
        for each in said["listed"]
    }


def fetched(said):
    """Committed offset, leader epoch and metadata by group, topic and partition."""
    return {
        (group, topic["name"], each["partitionIndex"]): (
            each["committedOffset"], each["committedLeaderEpoch"], each["metadata"]
        )
        for group, topics in said["offsets"].items()
        for topic in topics
        for each in topic["partitions"]
    }


def split(partition):
    """The topic and the number of a partition."""
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def assigned(found):
    """Sorted partitions by kind of task and topic; by topic id, or subtopology."""
    return {(each.kind, each.topic): sorted(each.partitions) for each in found}


def partitions_or_tasks(assignment):
    """As `assigned`, of a described assignment."""
    if assignment is None:
        return {}
    found = {
        (None, each["topicId"]): sorted(each["partitions"])
        for each in assignment.get("topicPartitions", ())
    }
    for kind in ("active", "standby", "warmup"):
        for each in assignment.get(f"{kind}Tasks", ()):
            found[kind, each["subtopologyId"]] = sorted(each["partitions"])
    return found


def protocol_topics(text, *, has_partitions):
    """The topics at the beginning of what classic members tell each other."""
    data = base64.b64decode(text)
    (topics,), at = struct.unpack_from(">i", data, 2), 6
    found = {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, at)
        topic, at = data[at + 2 : at + 2 + length].decode(), at + 2 + length
        found[topic] = None
        if has_partitions:
            (count,) = struct.unpack_from(">i", data, at)
            found[topic] = sorted(struct.unpack_from(f">{count}i", data, at + 4))
            at += 4 + 4 * count
    return {(None, topic): each for topic, each in found.items()} if has_partitions else found
