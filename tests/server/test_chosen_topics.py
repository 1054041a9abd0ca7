"""What was not chosen is not there; ids of topics are stable, unique and never reserved ones."""

from __future__ import annotations

import pytest
from models.protocol_client import ProtocolClient
from use_cases.stores import commit, record, written

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve

RESERVED = (22 * "A", 21 * "A" + "Q")
KNOWN_ID = "dG9waWMgaWQgb2YgdGVzdA"


@pytest.fixture
def logs(tmp_path):
    """A directory with the topics open and hidden, and what groups committed."""
    with written(tmp_path / "logs") as partition:
        for topic in ("open", "hidden"):
            partition(topic, 0).add(*[record(each) for each in range(5)])
        partition("__consumer_offsets").add(
            commit("of both", "open", 0, 4), commit("of both", "hidden", 0, 3),
            commit("of hidden", "hidden", 0, 2), commit("of gone", "gone", 0, 1),
        )
    return tmp_path / "logs"


def ask(served, key, version, **fields):
    """Return a response."""
    with ProtocolClient(served.bootstrap_servers) as client:
        return client.ask(key, version, **fields)


def ids_of(served):
    """Return the topic ids by name."""
    with ProtocolClient(served.bootstrap_servers) as client:
        return client.topic_ids()


def test_a_topic_that_was_not_chosen_is_unknown_to_every_request(logs):
    with serve(logs) as served:
        hidden_id = ids_of(served)["hidden"]
        assert hidden_id == served.catalog.topics["hidden"].topic_id
    row = {"partition": 0, "partition_index": 0}
    with serve(logs, ["open-0"]) as served:
        assert set(ids_of(served)) == {"open"}
        unknown, no_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
        for key, version, topic, error in (
            (ApiKey.METADATA, 12, {"name": "hidden"}, unknown),
            (ApiKey.METADATA, 12, {"topic_id": hidden_id, "name": None}, no_id),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"name": "hidden"}, unknown),
        ):
            (found,) = ask(served, key, version, topics=(topic,))["topics"]
            assert found["error_code"] == error
            assert not found["partitions"]
        fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}
        for version, name, error in (
            (12, {"topic": "hidden"}, unknown), (13, {"topic_id": hidden_id}, no_id),
        ):
            answer = ask(
                served, ApiKey.FETCH, version, max_wait_ms=0, min_bytes=1,
                topics=(name | {"partitions": (fetched,)},),
            )
            assert answer["responses"][0]["partitions"][0]["error_code"] == error
        asked = {"partition_index": 0, "timestamp": -1}
        topics = ({"name": "hidden", "partitions": (asked,)},)
        answers = [ask(served, ApiKey.LIST_OFFSETS, 7, topics=topics)]
        topics = ({"topic": "hidden", "partitions": ({"partition": 0, "leader_epoch": 0},)},)
        answers.append(ask(served, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics))
        topics = ({"name": "hidden", "partition_indexes": (0,)},)
        answers.append(ask(served, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics))
        for answer in answers:
            (found,) = answer["topics"][0]["partitions"]
            assert found["error_code"] == unknown
            assert row.items() & found.items()
        resource = {"resource_type": 2, "resource_name": "hidden", "configuration_keys": None}
        (found,) = ask(served, ApiKey.DESCRIBE_CONFIGS, 4, resources=(resource,))["results"]
        assert found["error_code"] == unknown
        for wanted in (None, ({"topic": "hidden", "partitions": (0,)},)):
            for each in ask(served, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=wanted)["results"]:
                assert "hidden" not in [topic["name"] for topic in each["topics"]]


def test_offsets_of_topics_that_were_not_chosen_are_not_told(logs):
    def committed(served, topics):
        group = {"group_id": "of both", "topics": topics}
        (found,) = ask(served, ApiKey.OFFSET_FETCH, 9, groups=(group,))["groups"]
        return {
            each["name"]: [row["committed_offset"] for row in each["partitions"]]
            for each in found["topics"]
        }

    def groups(served):
        listed = ask(served, ApiKey.LIST_GROUPS, 5)["groups"]
        return {each["group_id"] for each in listed}

    with serve(logs) as served:
        assert committed(served, None) == {"open": [4], "hidden": [3]}
        assert groups(served) == {"of both", "of hidden", "of gone"}
    with serve(logs, ["open-0"]) as served:
        assert committed(served, None) == {"open": [4]}
        asked = tuple(
            {"name": name, "partition_indexes": (0,)} for name in ("open", "hidden")
        )
        assert committed(served, asked) == {"open": [4], "hidden": [-1]}
        assert groups(served) == {"of both", "of gone"}


def test_transactional_ids_are_those_of_a_chosen_topic(golden):
    logs = golden("4.3.1", "transactions", "answers").logs
    with serve(logs) as served:
        listed = ask(served, ApiKey.LIST_TRANSACTIONS, 1)["transaction_states"]
        names = tuple(each["transactional_id"] for each in listed)
        described = ask(served, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
        running = [each["topics"] for each in described["transaction_states"] if each["topics"]]
        assert running
        for each in served.catalog.topics.values():
            assert each.is_internal == each.name.startswith("__")
    with serve(logs, ["__transaction_state-0"]) as served:
        assert ask(served, ApiKey.LIST_TRANSACTIONS, 1)["transaction_states"] == listed
        described = ask(served, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
        assert all(each["topics"] == () for each in described["transaction_states"])
    with serve(logs, ["txn-0"]) as served:
        assert ask(served, ApiKey.LIST_TRANSACTIONS, 1)["transaction_states"] == ()
        described = ask(served, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
        assert {each["error_code"] for each in described["transaction_states"]} == {
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        }


def test_topic_ids_are_the_same_at_each_start_and_of_one_topic_only(logs):
    def ids():
        with serve(logs) as served:
            found = ids_of(served)
            assert len({*found.values(), *RESERVED}) == len(found) + len(RESERVED)
            for name, topic_id in found.items():
                asked = {"topic_id": topic_id, "name": None}
                (topic,) = ask(served, ApiKey.METADATA, 12, topics=(asked,))["topics"]
                assert topic["name"] == name
            return found

    derived = ids()
    assert derived == ids()
    written_id = {"open": KNOWN_ID}
    for state in (*RESERVED, "not an id", KNOWN_ID):
        for name in ("open", "hidden"):
            path = logs / f"{name}-0" / "partition.metadata"
            path.write_text(f"version: 0\ntopic_id: {state}\n")
        # A copied directory has the id of another topic: the first one in order keeps it.
        expected = derived | ({"hidden": KNOWN_ID} if state == KNOWN_ID else {})
        assert ids() == expected
    (logs / "hidden-0" / "partition.metadata").unlink()
    assert ids() == derived | written_id
