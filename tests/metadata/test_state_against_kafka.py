"""What metadata records add up to, against the images that Kafka's own classes make of them."""

import base64
import random

import pytest
from models import kafka_classes, metadata_logs
from models.seed import SEED, some

from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.metadata.replay_error import ReplayError
from kafkastore.metadata.state import ClusterState

pytestmark = pytest.mark.kafka

BROKERS = ["3.9.1", "4.1.1", "4.3.1"]
LOGS = 200
#: The last that replays the state of a migration from ZooKeeper.
LAST_MIGRATING = "3.9.1"
#: No record of these is in the logs: a transaction is replayed before, the last is in no release.
LEFT_OUT = {
    "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord",
    "UnregisterControllerRecord",
}
#: Fields without an order; of elements with the same name, the last counts.
NAMED = {"end_points": "name", "features": "name", "entity": "entity_type"}
UNORDERED = ("log_dirs", "cordoned_log_dirs")
#: Null and nothing mean the same.
NULLABLE = ("cordoned_log_dirs", "eligible_leader_replicas", "last_known_elr")


def records_of(state, broker):
    """A state as the records of a snapshot, each as name and fields."""
    for name, level in state.features.items():
        yield "FeatureLevelRecord", {"name": name, "feature_level": level}
    if broker == LAST_MIGRATING:
        yield "ZkMigrationStateRecord", {"zk_migration_state": state.zk_migration_state or 0}
    for each in state.brokers.values():
        yield "RegisterBrokerRecord", registration(each) | {
            "broker_id": each.broker_id,
            "is_migrating_zk_broker": each.is_migrating_zk_broker,
            "broker_epoch": each.epoch,
            "rack": each.rack,
            "fenced": each.is_fenced,
            "in_controlled_shutdown": each.is_in_controlled_shutdown,
            "log_dirs": each.log_dirs,
            "cordoned_log_dirs": each.cordoned_log_dirs,
        }
    for each in state.controllers.values():
        yield "RegisterControllerRecord", registration(each) | {
            "controller_id": each.controller_id,
            "zk_migration_ready": each.is_zk_migration_ready,
        }
    for topic_id, topic in state.topics_by_id.items():
        yield "TopicRecord", {"name": topic.name, "topic_id": topic_id}
        for number, each in topic.partitions.items():
            fields = each._asdict()
            fields["eligible_leader_replicas"] = fields.pop("elr")
            yield "PartitionRecord", fields | {"partition_id": number, "topic_id": topic_id}
    for (kind, resource), values in state.configs.items():
        for name, value in values.items():
            yield "ConfigRecord", {
                "resource_type": kind, "resource_name": resource, "name": name, "value": value
            }
    for entity, values in state.client_quotas.items():
        parts = tuple({"entity_type": kind, "entity_name": name} for kind, name in entity)
        for key, value in values.items():
            fields = {"entity": parts, "key": key, "value": value, "remove": False}
            yield "ClientQuotaRecord", fields
    if state.next_producer_id is not None:
        yield "ProducerIdsRecord", {
            "broker_id": -1, "broker_epoch": -1, "next_producer_id": state.next_producer_id
        }
    for acl_id, fields in state.acls.items():
        yield "AccessControlEntryRecord", fields | {"id": acl_id}
    for (mechanism, user), fields in state.scram_credentials.items():
        yield "UserScramCredentialRecord", fields | {"mechanism": mechanism, "name": user}
    for token_id, fields in state.delegation_tokens.items():
        yield "DelegationTokenRecord", fields | {"token_id": token_id}


def registration(each):
    return {
        "incarnation_id": each.incarnation_id,
        "end_points": tuple(endpoint._asdict() for endpoint in each.endpoints),
        "features": tuple(
            {"name": name, "min_supported_version": lowest, "max_supported_version": highest}
            for name, (lowest, highest) in each.features.items()
        ),
    }


def comparable(records):
    """Records as texts, without the order of what has none."""
    return {repr((name, sorted(_comparable(fields).items()))) for name, fields in records}


def _comparable(fields):
    found = fields | {name: fields[name] or () for name in NULLABLE if name in fields}
    for name in UNORDERED:
        if name in found:
            found[name] = sorted(found[name], key=str)
    for name, key in NAMED.items():
        if name in found:
            last = {each[key]: sorted(each.items()) for each in found[name]}
            found[name] = sorted(last.items())
    return found


def parsed(frame):
    record = RECORDS.parse_framed(frame)
    return record.number, record.name, record.value


def differences(broker, log, answers):
    """Where a log first gives something else than Kafka's image after the same record."""
    state, theirs = ClusterState(), set()
    for record, answer in zip(log, answers.split(" "), strict=True):
        number, _, fields = parsed(record.frame)
        try:
            state.replay(number, fields)
            error = None
        except ReplayError as raised:
            error = raised
        if (error is None) != (answer != "refused"):
            yield record, answer, error
            return
        ours = comparable(records_of(state, broker))
        if answer not in ("refused", "same"):
            image = [parsed(base64.b64decode(frame)) for frame in answer.split(",")]
            theirs = comparable((name, fields) for _, name, fields in image if is_kept(fields))
            again = ClusterState()
            for number, _, fields in image:
                again.replay(number, fields)
            if comparable(records_of(again, broker)) != theirs:
                yield record, "a snapshot gives another state", answer
                return
        if ours != theirs:
            yield record, ours - theirs, theirs - ours
            return
        assert state.topics == {topic.name: topic for topic in state.topics_by_id.values()}
        assert all((*state.configs.values(), *state.client_quotas.values()))


def is_kept(fields):
    """3.9 takes the level of ``kraft.version`` also from such a record, later ones do not."""
    return fields.get("name") != "kraft.version" or "feature_level" not in fields


@pytest.mark.parametrize("broker", some(BROKERS, 1, __name__))
def test_kafkas_classes_make_the_same_image_of_every_prefix_of_a_log(require_broker, broker):
    require_broker(broker)
    logs = [
        metadata_logs.random_log(random.Random(f"{SEED} {broker} {number}"), broker)
        for number in range(LOGS)
    ]
    queries = [
        (",".join(base64.b64encode(record.frame).decode() for record in log),) for log in logs
    ]
    answers = kafka_classes.ask(broker, queries, program="KafkaImages")
    wrong = [
        found
        for log, answer in zip(logs, answers, strict=True)
        for found in differences(broker, log, answer)
    ]
    assert not wrong, (len(wrong), sorted(wrong, key=lambda each: len(str(each)))[:4])
    records = [record for log in logs for record in log]
    refused = sum(answer.split(" ").count("refused") for answer in answers)
    assert len(records) / 50 < refused < len(records) / 4
    assert {record.number for record in records} == {
        number for number, each in RECORDS.descriptions.items()
        if each.name not in LEFT_OUT and (each.name != "ClearElrRecord" or broker != "3.9.1")
    }
