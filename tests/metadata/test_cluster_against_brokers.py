"""`cluster` equals what KRaft clusters answered about themselves, at each moment they were asked.

The archives are in ``tests/golden/metadata``; ``tests/golden/make/cases/kraft_cluster.py`` and
its neighbours say what was done to the clusters. A case has the log directory of each node
(``logs-<id>``) and the moments (``cluster.json``).
"""

import json
import shutil
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

import kafkastore
from kafkastore.metadata.cluster_rows import acl_row
from kafkastore.samples.unpacking import unpack_archive

ARCHIVES = Path(__file__).parents[1] / "golden" / "metadata"
MANIFEST = json.loads((ARCHIVES / "MANIFEST.json").read_text())
NODES = [
    (version, name, logs)
    for version, entry in MANIFEST.items()
    for name, case in entry["cases"].items()
    for logs in case["logs"]
]
PRODUCER_ID_AT = 43  # in a batch
BLOCK_OF_PRODUCER_IDS = 1000
METADATA = "__cluster_metadata-0"
FIRST_TRANSACTIONAL = 14  # metadata.version 3.6-IV2 formats with a transaction
FIRST_WITH_CONTROLLERS = 15  # 3.7-IV0 registers them
FIRST_WITH_DIRECTORIES = 17  # 3.7-IV2 assigns replicas to log directories

RESOURCE_TYPES = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
# Kafka's numbers of what the access control entries of the cases have.
# A broker that starts keeps the configuration of a topic that was deleted, if it loads the records
# that set it and the one that deletes the topic together: it looks for it only in the state before
# them (Kafka 3.9.1 to 4.3.1, `ConfigurationsDelta.replay(RemoveTopicRecord)`). It gives it to a
# new topic of that name, and writes it into its snapshots; a controller forgets it.
REVIVED_CONFIGS = {("TOPIC", "doomed"): {"retention.ms": "2000"}}
REVIVED_AT = {("kraft-single", "restarted"), ("kraft-single", "recovered")}
# A resource's own entries; others are of the brokers' defaults.
OWN_SOURCES = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "BROKER": "DYNAMIC_BROKER_CONFIG",
    "CLIENT_METRICS": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG",
}


class Node:
    """A node's directory, and what the cluster answered."""

    def __init__(self, root, logs):
        self.logs = root / logs
        self.moments = json.loads((root / "cluster.json").read_text())["moments"]
        for moment in self.moments:
            moment["answers"]["revived"] = (root.name, moment["name"]) in REVIVED_AT
        (answers,) = (
            each
            for each in (json.loads(path.read_text()) for path in root.glob("answers-*.json"))
            if each["logs"] == logs
        )
        self.node_id, self.roles = answers["node_id"], answers["roles"]
        self.deletes = "metadata.max.retention.bytes" in answers["broker_config"]
        self.root = root

    @cache  # noqa: B019  (lives as long as the tests)
    def reached(self):
        """Each moment that the directory still has, with the cluster then."""
        found = []
        for moment in self.moments:
            try:
                found.append((moment, kafkastore.cluster(self.logs, as_of=moment["offset"])))
            except kafkastore.NoMetadataError:
                continue
        return found


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A function of version, case and directory; unpacks each archive once."""

    @cache
    def root_of(version):
        root = tmp_path_factory.mktemp("metadata")
        unpack_archive(ARCHIVES / MANIFEST[version]["archive"], root)
        return root

    @cache
    def node(version, name, logs):
        return Node(root_of(version) / name, logs)

    return node


@pytest.fixture(params=NODES, ids="/".join)
def node(request, unpacked):
    """One node after the other."""
    return unpacked(*request.param)


def both(node, theirs, ours):
    """By moment, what the cluster answered and what the directory shows."""
    moments = node.reached()
    return (
        {moment["name"]: theirs(moment["answers"], cluster) for moment, cluster in moments},
        {moment["name"]: ours(moment["answers"], cluster) for moment, cluster in moments},
    )


# What is compared: first as the cluster answered, then as read


def answered_brokers(answers, cluster):
    return {
        broker["id"]: (broker["host"], broker["port"], broker["rack"], bool(broker["is_fenced"]))
        for broker in answers["cluster"]["brokers"]
    }


def read_brokers(answers, cluster):
    # 3.9 lists only brokers that are not fenced
    lists_fenced = any(each["is_fenced"] is not None for each in answers["cluster"]["brokers"])
    found = {}
    for broker in cluster.brokers.values():
        (endpoint,) = (each for each in broker.endpoints if each.name == "PLAINTEXT")
        if lists_fenced or not broker.is_fenced:
            found[broker.broker_id] = (
                endpoint.host, endpoint.port, broker.rack, broker.is_fenced
            )
    return found


def answered_topics(answers, cluster):
    return {
        name: {
            "topic_id": topic["topic_id"],
            "partitions": {
                int(number): {
                    "leader": partition["leader"],
                    "replicas": partition["replicas"],
                    "isr": partition["isr"],
                    "elr": partition["elr"] or [],
                    "last_known_elr": partition["last_known_elr"] or [],
                }
                for number, partition in topic["partitions"].items()
            },
        }
        for name, topic in answers["topics"].items()
    }


def read_topics(answers, cluster):
    return {
        name: {
            "topic_id": topic.topic_id,
            "partitions": {
                number: {
                    "leader": partition.leader,
                    "replicas": list(partition.replicas),
                    "isr": list(partition.isr),
                    "elr": list(partition.elr),
                    "last_known_elr": list(partition.last_known_elr),
                }
                for number, partition in topic.partitions.items()
            },
        }
        for name, topic in cluster.topics.items()
    }


def answered_leader_epochs(answers, cluster):
    return {
        (name, int(number)): partition["leader_epoch"]
        for name, topic in answers["topics"].items()
        for number, partition in topic["partitions"].items()
        if partition["leader"] >= 0
    }


def read_leader_epochs(answers, cluster):
    return {
        (name, number): partition.leader_epoch
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }


def answered_reassignments(answers, cluster):
    return answers["reassignments"]


def read_reassignments(answers, cluster):
    return {
        f"{name}-{number}": {
            "replicas": list(partition.replicas),
            "adding_replicas": list(partition.adding_replicas),
            "removing_replicas": list(partition.removing_replicas),
        }
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
        if partition.adding_replicas or partition.removing_replicas
    }


def answered_configs(answers, cluster):
    found = {}
    for resource in answers["configs"]:
        source = OWN_SOURCES[resource["type"]]
        if resource["type"] == "BROKER" and not resource["name"]:
            source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
        own = {
            name: entry["value"]
            for name, entry in resource["entries"].items()
            if entry["source"] == source
        }
        if own:
            found[resource["type"], resource["name"]] = own
    if answers["revived"]:
        for resource, values in REVIVED_CONFIGS.items():
            assert found.pop(resource) == values
    return found


def read_configs(answers, cluster):
    """A broker that does not run cannot be asked for its configuration."""
    asked = {(resource["type"], resource["name"]) for resource in answers["configs"]}
    found = {
        (RESOURCE_TYPES[kind], name): values for (kind, name), values in cluster.configs.items()
    }
    running = {name for kind, name in asked if kind == "BROKER"}
    return {
        (kind, name): values
        for (kind, name), values in without_revived(found, answers["revived"]).items()
        if kind != "BROKER" or name in running
    }


def without_revived(configs, revived):
    """Leave out what a snapshot may have, if a broker kept it by mistake."""
    return {
        resource: values
        for resource, values in configs.items()
        if not revived or REVIVED_CONFIGS.get(resource) != values
    }


def answered_features(answers, cluster):
    return {name: highest for name, (_, highest) in answers["features"]["finalized"].items()}


def read_features(answers, cluster):
    version = {"kraft.version": cluster.quorum.version} if cluster.quorum.version else {}
    return cluster.features | version


def answered_scram_credentials(answers, cluster):
    return answers["scram_credentials"]


def read_scram_credentials(answers, cluster):
    found = {}
    for (mechanism, user), credential in cluster.scram_credentials.items():
        found.setdefault(user, {})[SCRAM_MECHANISMS[mechanism]] = credential["iterations"]
    return found


def answered_client_quotas(answers, cluster):
    return {frozenset(each["entity"].items()): each["values"] for each in answers["client_quotas"]}


def read_client_quotas(answers, cluster):
    return cluster.client_quotas


def answered_acls(answers, cluster):
    return sorted(tuple(sorted(acl.items())) for acl in answers["acls"])


def read_acls(answers, cluster):
    found = []
    for acl in map(acl_row, cluster.acls.values()):
        row = {
            field: acl[field]
            for field in ("resource_type", "resource_name", "pattern_type", "principal", "host",
                          "operation")
        }
        found.append(tuple(sorted((row | {"permission": acl["permission_type"]}).items())))
    return sorted(found)


def answered_delegation_tokens(answers, cluster):
    return {token["token_id"]: token for token in answers.get("delegation_tokens", ())}


def read_delegation_tokens(answers, cluster):
    return {
        token_id: {**token, "renewers": sorted(token["renewers"])}
        for token_id, token in cluster.delegation_tokens.items()
    }


COMPARED = {
    "brokers": (answered_brokers, read_brokers),
    "topics": (answered_topics, read_topics),
    "leader_epochs": (answered_leader_epochs, read_leader_epochs),
    "reassignments": (answered_reassignments, read_reassignments),
    "configs": (answered_configs, read_configs),
    "features": (answered_features, read_features),
    "scram_credentials": (answered_scram_credentials, read_scram_credentials),
    "client_quotas": (answered_client_quotas, read_client_quotas),
    "acls": (answered_acls, read_acls),
    "delegation_tokens": (answered_delegation_tokens, read_delegation_tokens),
}


@pytest.mark.parametrize("field", COMPARED)
def test_cluster_is_as_its_brokers_described_it_at_each_moment(node, field):
    answered, read = both(node, *COMPARED[field])
    assert read == answered


def test_every_controller_has_every_moment(node):
    """But one that deletes segments lacks the first, and a broker what came after it stopped."""
    names = [moment["name"] for moment, _ in node.reached()]
    everything = [moment["name"] for moment in node.moments]
    if node.deletes:
        assert 0 < len(names) < len(everything)
        assert names == everything[-len(names) :]
    elif "controller" in node.roles:
        assert names == everything
    else:
        assert names
        assert names == everything[: len(names)]


def test_the_end_of_the_log_is_the_last_moment(node):
    """Nothing was done to the cluster after the last question."""
    moment = node.moments[-1]
    cluster = kafkastore.cluster(node.logs)
    if node.node_id not in moment["running"]:
        assert cluster.end_offset < moment["offset"]
        return
    assert cluster.end_offset >= moment["offset"]
    for answered, read in COMPARED.values():
        assert read(moment["answers"], cluster) == answered(moment["answers"], cluster)


def test_the_time_of_a_question_gives_the_state_that_was_answered(node):
    for moment, cluster in node.reached():
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment["at_ms"])
        at_that_time = kafkastore.cluster(node.logs, as_of=time)
        assert at_that_time.timestamp <= moment["at_ms"]
        assert at_that_time.end_offset == moment["offset"]
        assert vars(at_that_time.quorum) == vars(cluster.quorum)
        for answered, read in COMPARED.values():
            expected = answered(moment["answers"], cluster)
            assert read(moment["answers"], at_that_time) == expected


def test_the_quorum_is_the_described_one(node):
    for moment, cluster in node.reached():
        quorum = moment["quorum"]
        assert cluster.cluster_id == moment["answers"]["cluster"]["cluster_id"]
        assert cluster.end_offset == quorum["high_watermark"] == moment["offset"]
        assert cluster.quorum.leader_epoch == quorum["leader_epoch"]
        if not node.deletes or cluster.quorum.leader_id is not None:  # else its record is deleted
            assert cluster.quorum.leader_id == quorum["leader_id"]
        assert sorted(cluster.quorum.voters) == [voter["id"] for voter in quorum["voters"]]
        if cluster.quorum.version:
            directories = {voter["id"]: voter["directory_id"] for voter in quorum["voters"]}
            assert directories == {
                number: voter["voter_directory_id"]
                for number, voter in cluster.quorum.voters.items()
            }
            for number, endpoints in quorum.get("nodes", {}).items():
                assert list(cluster.quorum.voters[int(number)]["endpoints"]) == endpoints


def test_voters_are_added_updated_and_removed(node):
    if node.root.name == "kraft-voters":
        voters = {
            moment["name"]: {
                number: voter["endpoints"][0]["port"]
                for number, voter in cluster.quorum.voters.items()
            }
            for moment, cluster in node.reached()
        }
        assert voters["formatted"].keys() == voters["removed"].keys() == {1}
        assert voters["added"].keys() == {1, 3}
        if "updated" in voters:  # 3.9.1 did not write it
            assert voters["updated"].keys() == {1, 3}
            assert voters["added"][3] != voters["updated"][3]


def test_controllers_that_vote_are_registered(node):
    for moment, cluster in node.reached():
        if cluster.features["metadata.version"] >= FIRST_WITH_CONTROLLERS:
            quorum = moment["quorum"]
            voters = {voter["id"] for voter in quorum["voters"]}
            # A controller that was removed from the voters, or not added yet, is registered too.
            brokers = {broker["id"] for broker in moment["answers"]["cluster"]["brokers"]}
            observers = {each["id"] for each in quorum["observers"]} - brokers
            assert cluster.controllers.keys() >= voters
            assert cluster.controllers.keys() <= voters | observers
        else:
            assert not cluster.controllers


def test_producer_ids_that_batches_have_were_given_to_brokers(node):
    """The controller gives blocks of them; a producer of kraft-cluster got one id."""
    given = kafkastore.cluster(node.logs).next_producer_id
    if node.root.name != "kraft-cluster":
        assert given is None
        return
    assert given > 0
    assert given % BLOCK_OF_PRODUCER_IDS == 0
    # Retention by the records' time has deleted most of these.
    for path in node.root.glob("logs-*/orders-3/*.log*"):
        data = path.read_bytes()
        start = 0
        while start + PRODUCER_ID_AT + 8 <= len(data):
            (size,) = struct.unpack_from(">i", data, start + 8)
            (producer_id,) = struct.unpack_from(">q", data, start + PRODUCER_ID_AT)
            assert 0 <= producer_id < given
            start += 12 + size


def everything(cluster):
    """All of a cluster's state."""
    partitions = {
        (name, topic.topic_id, number): partition
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
    }
    return {
        "brokers": cluster.brokers,
        "controllers": cluster.controllers,
        "partitions": partitions,
        "configs": cluster.configs,
        "features": cluster.features,
        "client_quotas": cluster.client_quotas,
        "acls": cluster.acls,
        "scram_credentials": cluster.scram_credentials,
        "next_producer_id": cluster.next_producer_id,
    }


def is_revived(node, resource, values):
    """Say whether a broker may have kept a configuration by mistake."""
    kind, name = resource
    in_case = any(node.root.name == case for case, _ in REVIVED_AT)
    return in_case and REVIVED_CONFIGS.get((RESOURCE_TYPES[kind], name)) == values


def test_each_snapshot_has_the_state_that_the_log_before_it_adds_up_to(node, tmp_path):
    """A snapshot is what the node itself made of the log."""
    snapshots = sorted((node.logs / METADATA).glob("*-*.checkpoint"))
    offsets = {path: int(path.name.split("-")[0]) for path in snapshots}
    copy = tmp_path / METADATA
    shutil.copytree(node.logs / METADATA, copy)
    for path in copy.glob("*.checkpoint"):
        path.unlink()
    compared = 0
    for path, offset in offsets.items():
        if offset == 0:
            continue  # what the node was formatted with
        try:
            replayed = kafkastore.cluster(copy, as_of=offset)
        except kafkastore.NoMetadataError:  # segments before it were deleted
            continue
        written, expected = everything(kafkastore.cluster(path)), everything(replayed)
        written["configs"] = {
            resource: values
            for resource, values in written["configs"].items()
            if resource in expected["configs"] or not is_revived(node, resource, values)
        }
        assert written == expected
        compared += 1
    assert compared or node.deletes or not any(offsets.values())


def test_replicas_are_in_the_directories_that_the_nodes_name(node):
    directories = {}
    for properties in node.root.glob("logs-*/meta.properties"):
        lines = (line.partition("=") for line in properties.read_text().splitlines())
        values = {name: value for name, _, value in lines}
        directories[int(values["node.id"])] = values["directory.id"]
    named = 0
    for _, cluster in node.reached():
        if cluster.features["metadata.version"] < FIRST_WITH_DIRECTORIES:
            continue
        for topic in cluster.topics.values():
            for partition in topic.partitions.values():
                for replica, directory in zip(
                    partition.replicas, partition.directories, strict=True
                ):
                    if directory is not None and set(directory[:-2]) != {"A"}:  # not assigned yet
                        assert directory == directories[replica]
                        named += 1
    assert named


def test_records_of_the_first_transaction_count_at_its_end(node):
    """A controller writes what the cluster was formatted with as one transaction."""
    if "controller" not in node.roles or node.deletes:
        return
    first = kafkastore.cluster(node.logs, as_of=node.moments[0]["offset"])
    early = [kafkastore.cluster(node.logs, as_of=offset) for offset in range(1, 20)]
    within = [cluster for cluster in early if cluster.open_transaction is not None]
    if first.features["metadata.version"] < FIRST_TRANSACTIONAL:
        assert not within
        return
    assert within
    for cluster in within:
        assert not cluster.features
        assert not cluster.scram_credentials
    after = early[early.index(within[-1]) + 1]
    assert after.features["metadata.version"] == first.features["metadata.version"]
