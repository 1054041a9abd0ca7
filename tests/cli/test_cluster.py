"""``kafkastore cluster``: tables, JSON, differences, and scripts that make topics again."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from models import metadata_directory as made
from models.metadata_directory import DIRECTORY, TOPIC_ID

import kafkastore
from kafkastore.metadata.cluster_rows import rows_of

PASSWORD = "hunter2"
FRAMES = [
    made.feature("metadata.version", 27),
    made.broker(1, 1, rack="r1"),
    made.frame("UnfenceBroker", id=1, epoch=1),
    made.topic("orders"),
    made.partition(0),
    made.partition(1, replicas=(1, 2, 3, 4), adding_replicas=(4,)),
    made.config("cleanup.policy", "compact,delete", resource="orders"),
    made.config("ssl.keystore.password", PASSWORD, resource="1", kind=4),
    made.config("listeners", "a,b", resource="", kind=4),
    made.topic("it's\n--x", DIRECTORY),
    made.partition(0, DIRECTORY, replicas=(1,)),
    made.frame("ClientQuota", entity=(
        {"entity_type": "user", "entity_name": "al ice"},
        {"entity_type": "client-id", "entity_name": None},
    ), key="producer_byte_rate", value=1048576.5),
    made.frame("UserScramCredential", name="alice", mechanism=1, salt=b"s4lt",
               stored_key=b"st0red", server_key=b"s3rver", iterations=4096),
    made.change(0, leader=2),
    made.frame("NoOp"),
    made.config("cleanup.policy", None, resource="orders"),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory of a metadata log."""
    path = tmp_path / "logs" / "__cluster_metadata-0"
    made.write_log(path, FRAMES)
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=Cc\nnode.id=1\n")
    return path


def test_json_has_a_row_for_everything(run: Run, directory: Path) -> None:
    ran = run("cluster", directory.parent, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [*rows_of(kafkastore.cluster(directory.parent))]
    kinds = [row["kind"] for row in ran.lines]
    assert set(kinds) == {
        "cluster", "feature", "broker", "topic", "partition", "config", "client_quota",
        "scram_credential",
    }
    assert ran.lines[0]["cluster_id"] == "Cc"


def test_tables_have_names_epochs_and_configurations(run: Run, directory: Path) -> None:
    ran = run("cluster", directory)
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "features metadata.version 27 (4.1)" in lines
    assert f"1 active r1 PLAINTEXT://h:9092 {DIRECTORY}" in lines
    assert f"orders {TOPIC_ID} 2 3" in lines
    assert "orders 0 2 1 1,2,3 1,2,3 -" in lines
    assert "orders 1 1 0 1,2,3,4 1,2,3 - adding 4" in lines
    assert "broker (default) listeners=a,b" in lines
    assert "alice SCRAM-SHA-256 4096" in lines
    assert "\n--x" not in ran.out


def test_acls_are_counted_in_a_line_of_its_own(run: Run, tmp_path: Path) -> None:
    made.write_log(tmp_path / "__cluster_metadata-0", [made.frame(
        "AccessControlEntry", id=TOPIC_ID, resource_type=2, resource_name="t", pattern_type=3,
        principal="User:u", host="*", operation=3, permission_type=3,
    )])
    lines = run("cluster", tmp_path).out.splitlines()
    assert lines[-2:] == ["", "1 ACL: --json shows them"]
    (change,) = run("cluster", tmp_path, "--diff", "..", "--json").lines
    names = {"resource_type": "TOPIC", "pattern_type": "LITERAL", "operation": "READ",
             "permission_type": "ALLOW"}
    assert names.items() <= change["after"].items()


def test_secrets_are_masked_unless_asked_for(run: Run, directory: Path) -> None:
    for options in ((), ("--json",), ("--diff", "0.."), ("--diff", "0..", "--json"),
                    ("--recreate",), ("--recreate", "--json")):
        shown = run("cluster", directory, *options).out
        assert PASSWORD not in shown
        assert b"s4lt".hex() not in shown
    shown = run("cluster", directory, "--json", "--show-secrets").out
    assert PASSWORD in shown
    assert b"s4lt".hex() in shown


def test_a_moment_is_an_offset_or_a_time(run: Run, directory: Path) -> None:
    for as_of in ("4", "1970-01-01T00:00:01.003Z"):
        (row,) = (row for row in run("cluster", directory, "--json", "--as-of", as_of).lines
                  if row["kind"] == "topic")
        assert (row["topic"], row["partitions"]) == ("orders", 0)
    assert_one_sentence(run("cluster", directory, "--as-of", "17"), "ends at offset 16")
    assert_one_sentence(run("cluster", directory, "--as-of", "soon"), "soon")


def test_directories_of_several_clusters_are_refused(
    run: Run, directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    made.write_log(other / "__cluster_metadata-0", FRAMES, epoch=9)
    (other / "meta.properties").write_text("version=1\ncluster.id=Dd\nnode.id=2\n")
    for arguments in ((), ("--diff", ".."), ("--json",), ("--as-of", "3")):
        ran = run("cluster", directory.parent, other, *arguments)
        assert_one_sentence(ran, "Cc", "Dd")
        assert ran.out == ""
    for command in (("cluster", "best-replicas"), ("serve", "--listen", "127.0.0.1:0")):
        assert_one_sentence(run(*command, directory.parent, other), "Cc", "Dd")
    with pytest.raises(kafkastore.SeveralClustersError) as caught:
        kafkastore.best_replicas([directory.parent, other])
    assert caught.value.paths == {"Cc": directory.parent, "Dd": other}


def test_a_topic_has_no_configurations_of_brokers_with_its_name(
    run: Run, tmp_path: Path
) -> None:
    made.write_log(tmp_path / "__cluster_metadata-0", [
        made.topic("1"), made.partition(0), made.config("retention.ms", "5", resource="1"),
        made.config("listeners", "a", resource="1", kind=4), made.broker(1, 4),
    ])
    rows = run("cluster", tmp_path, "--json", "--topic", "1").lines
    assert [row["resource_type"] for row in rows if row["kind"] == "config"] == ["topic"]
    changes = run("cluster", tmp_path, "--diff", "..", "--json", "--topic", "1").lines
    assert [change["offset"] for change in changes] == [0, 1, 2]


def test_some_topics_can_be_chosen(run: Run, directory: Path) -> None:
    rows = run("cluster", directory, "--json", "--topic", "orders").lines
    assert [row["topic"] for row in rows if row["kind"] == "topic"] == ["orders"]
    assert_one_sentence(run("cluster", directory, "--topic", "ordres"), "ordres")


def test_a_difference_has_each_record_with_what_it_changed(run: Run, directory: Path) -> None:
    ran = run("cluster", directory, "--diff", "13..16", "--json")
    leader, policy = ran.lines
    assert (leader["offset"], leader["record"]) == (13, "PartitionChangeRecord")
    assert leader["subject"] == {"kind": "partition", "topic": "orders", "partition": 0}
    assert leader["before"] == {"leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    assert leader["after"] == {"leader": 2, "leader_epoch": 1, "partition_epoch": 1}
    assert (policy["offset"], policy["timestamp"], policy["epoch"]) == (15, 1015, 1)
    assert policy["subject"]["name"] == "cleanup.policy"
    assert policy["before"]["value"] == "compact,delete"
    assert policy["after"] is None
    shown = run("cluster", directory, "--diff", "13..16").out
    assert "leader 1 → 2, leader_epoch 0 → 1, partition_epoch 0 → 1" in shown
    assert "removed" in shown


def test_a_default_is_named_so(run: Run, directory: Path) -> None:
    (change,) = run("cluster", directory, "--diff", "8..9", "--json").lines
    assert change["subject"] == {
        "kind": "config", "resource_type": "broker", "resource_name": None, "name": "listeners"}
    assert "config broker (default) listeners" in run("cluster", directory, "--diff", "8..9").out


def test_differences_of_neighbours_make_that_of_the_whole(run: Run, directory: Path) -> None:
    def changes(between: str) -> list[dict[str, Any]]:
        return run("cluster", directory, "--diff", between, "--json").lines

    whole = changes("..")
    assert whole == changes("0..16")
    parts = [change for end in range(16) for change in changes(f"{end}..{end + 1}")]
    assert parts == whole
    assert changes("1970-01-01T00:00:01.005Z..1970-01-01T00:00:01.008Z") == changes("6..9")
    assert len(whole) == len(FRAMES) - 1  # one is a NoOpRecord
    only = run("cluster", directory, "--diff", "..", "--topic", "orders", "--json").lines
    assert [change["offset"] for change in only] == [3, 4, 5, 6, 13, 15]


def test_the_records_of_a_transaction_are_changes_at_its_end(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    made.write_log(directory, [
        made.frame("BeginTransaction"), made.topic(), made.partition(0),
        made.frame("EndTransaction"),
    ])
    for between, offsets in (("0..3", []), ("3..4", [1, 2]), ("0..4", [1, 2])):
        lines = run("cluster", directory, "--diff", between, "--json").lines
        assert [change["offset"] for change in lines] == offsets


def test_a_changed_secret_is_a_change_and_shown_on_request(run: Run, tmp_path: Path) -> None:
    user = {"name": "u", "mechanism": 1, "stored_key": b"k", "server_key": b"k", "iterations": 9}
    made.write_log(tmp_path / "__cluster_metadata-0", [
        made.config("ssl.key.password", PASSWORD, resource="1", kind=4),
        made.config("ssl.key.password", "better", resource="1", kind=4),
        made.frame("UserScramCredential", **user, salt=b"old"),
        made.frame("UserScramCredential", **user, salt=b"new"),
    ])
    for options, values, salts in (
        ((), ["(masked)"] * 2, ["(masked)"] * 2),
        (("--show-secrets",), [PASSWORD, "better"], [b"old".hex(), b"new".hex()]),
    ):
        changes = run("cluster", tmp_path, "--diff", "..", "--json", *options).lines
        assert [change["after"]["value"] for change in changes[:2]] == values
        assert changes[1]["before"] == {"value": values[0]}
        assert (changes[3]["before"], changes[3]["after"]) == tuple({"salt": s} for s in salts)


def test_the_subject_of_a_changed_quota_is_its_entity(run: Run, directory: Path) -> None:
    (change,) = run("cluster", directory, "--diff", "11..12", "--json").lines
    rows = run("cluster", directory, "--json").lines
    (quota,) = (row for row in rows if row["kind"] == "client_quota")
    assert change["subject"]["entity"] == quota["entity"]


def test_no_change_is_noted(run: Run, directory: Path) -> None:
    for options in (("--diff", "5..5"), ("--diff", "..", "--topic", "ordres", "--json")):
        ran = run("cluster", directory, *options)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.startswith("note: ")


@pytest.mark.parametrize("between", [
    "5", "9..5", "x..y", "..99", "now..-1d", "2026-02-01T00:00:00Z..2026-01-01T00:00:00Z",
])
def test_a_wrong_difference_is_refused(run: Run, directory: Path, between: str) -> None:
    assert_one_sentence(run("cluster", directory, "--diff", between))


def test_a_difference_excludes_other_outputs(run: Run, directory: Path) -> None:
    for option in (("--as-of", "5"), ("--recreate",)):
        assert_one_sentence(run("cluster", directory, "--diff", "0..5", *option))


#: Notes its arguments and its input; topic `there` and broker 1 exist, and it fails as it is told.
TOOL = """#!/bin/sh
exec 3>&1 >> calls
printf '%s' "${0##*/}"
for word in "$@"; do printf '\\037%s' "$word"; done
case "$* " in
    *"--add-config-file "*) input=$(cat); printf '\\037%s' "$input" ;;
    *"--list "*) echo there >&3 ;;
    *"--describe "*) echo "Dynamic configs for broker 1 are:" >&3 ;;
esac
printf '\\036'
case "$* $input" in *$FAILS*) exit 1 ;; esac
"""


def calls_of(
    script: str, tmp_path: Path, *, code: int = 0, **environment: str
) -> list[list[str]]:
    """Run a script with tools that note their arguments; return what alters something."""
    for name in ("kafka-topics.sh", "kafka-configs.sh"):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "calls").write_text("")
    done = subprocess.run(
        ["sh"], input=script, cwd=tmp_path, text=True, capture_output=True, check=False,
        env={"PATH": os.environ["PATH"], "KAFKA_BIN": str(tmp_path), "FAILS": "no such",
             **environment},
    )
    assert done.returncode == code, done.stderr
    calls = (tmp_path / "calls").read_bytes().decode("utf-8", "surrogateescape")
    calls = calls.split("\036")[:-1]
    return [call.split("\037") for call in calls if not re.search("--list|--describe", call)]


def test_a_script_makes_topics_and_configurations_again(
    run: Run, directory: Path, tmp_path: Path
) -> None:
    ran = run("cluster", directory, "--recreate", "--as-of", "15")
    assert ran.code == 0
    calls = calls_of(ran.out, tmp_path, BOOTSTRAP="b:9092", BROKERS="2")
    topics, configs = (
        [call for call in calls if call[0] == name]
        for name in ("kafka-topics.sh", "kafka-configs.sh")
    )
    start = ["kafka-topics.sh", "--bootstrap-server", "b:9092", "--create", "--topic"]
    assert topics == [
        [*start, "it's\n--x", "--partitions", "1", "--replication-factor", "1"],
        [*start, "orders", "--partitions", "2", "--replication-factor", "2",
         "--config", "cleanup.policy=compact,delete"],
    ]
    alter = ["kafka-configs.sh", "--bootstrap-server", "b:9092", "--alter", "--entity-type"]
    from_input = ["--add-config-file", "/dev/stdin"]
    assert configs == [
        [*alter, "brokers", "--entity-default", *from_input, "listeners=a,b"],
        [*alter, "clients", "--entity-default", "--entity-type", "users", "--entity-name", "al ice",
         *from_input, "producer_byte_rate=1048576.5"],
    ]
    assert "# Set this secret yourself: 'ssl.keystore.password' of '1'" in ran.out
    assert "# Not made by this script: 1 SCRAM credentials" in ran.out
    whole = calls_of(ran.out, tmp_path, BOOTSTRAP="b:9092", COMMAND_CONFIG="c.properties")
    assert whole[1][3:5] == ["--command-config", "c.properties"]
    assert whole[1][whole[1].index("--replication-factor") + 1] == "3"


EVIL = "\n touch evil; '$(touch evil)`touch evil`\" & touch evil #\\\x1b[2J\x9b\x7f\udc9b%s"
IN_FILE = (
    r"\u000a touch evil; '$(touch evil)`touch evil`" + '"' + r" & touch evil #\\\u001b[2J\u009b"
    r"\u007f\udc9b%s"
)
IN_FILE_KEY = IN_FILE.replace(" ", "\\ ").replace("#", "\\#")


def test_the_names_of_a_hostile_log_run_nothing(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    evil = EVIL
    made.write_log(directory, [
        made.topic(evil), made.partition(0), made.config(evil, evil, resource=evil),
        made.config(evil + "password", evil, resource=evil, kind=4),
        made.config(evil, evil, resource=evil, kind=4),
        made.config(evil, evil, resource="1", kind=4),
        made.frame("ClientQuota", entity=({"entity_type": evil, "entity_name": evil},), key=evil,
                   value=1.0),
    ])
    script = run("cluster", directory, "--recreate").out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\udc80-\udcff]", script)
    topic, configs, broker, quota = calls_of(script, tmp_path, code=1, BOOTSTRAP="b")
    assert topic[5] == evil
    assert configs[7] == quota[5] == quota[7] == evil
    assert configs[-1] == broker[-1] == f"{IN_FILE_KEY}={IN_FILE}"
    assert not (tmp_path / "evil").exists()


TOGETHER, WITHOUT = "retention.ms=5", "3"  # the last argument: a configuration, or the replicas


@pytest.mark.parametrize(("fails", "code", "asked"), [
    ("no such", 0, [TOGETHER, "a=", "A=2\na=1"]),
    ("cleanup.policy", 1, [
        TOGETHER, WITHOUT, "cleanup.policy=[compact]", "retention.ms=[5]", "a=", "A=2\na=1"]),
    ("--topic orders", 1, [TOGETHER, WITHOUT, "A=2\na=1"]),
    ("A=2", 1, [TOGETHER, "a=", "A=2\na=1", "A=2", "a=1"]),
    ("--entity-type topics", 1, [TOGETHER, "a=", "A=2\na=1"]),
])
def test_what_a_new_cluster_refuses_does_not_stop_a_script(
    run: Run, tmp_path: Path, fails: str, code: int, asked: list[str]
) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    made.write_log(directory, [
        made.topic("orders"), made.partition(0), made.config("a", "", resource="orders"),
        made.config("cleanup.policy", "compact", resource="orders"),
        made.config("retention.ms", "5", resource="orders"),
        made.config("a", "1", resource="1", kind=4), made.config("A", "2", resource="1", kind=4),
    ])
    script = run("cluster", directory, "--recreate").out
    calls = calls_of(script, tmp_path, code=code, BOOTSTRAP="b", FAILS=fails)
    assert [call[-1] for call in calls] == asked


def test_topics_and_brokers_of_a_new_cluster_are_respected(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    made.write_log(directory, [
        made.topic("there"), made.partition(0), made.config("a", "=", resource="there"),
        made.config("a", "1", resource="2", kind=4), made.config("a", "3", resource="1", kind=4),
    ])
    script = run("cluster", directory, "--recreate").out
    (call,) = calls_of(script, tmp_path, code=1, BOOTSTRAP="b")
    assert call[-6:] == [
        "brokers", "--entity-name", "1", "--add-config-file", "/dev/stdin", "a=3"]


def test_json_for_another_cluster_has_ids_and_replicas(run: Run, directory: Path) -> None:
    (document,) = run("cluster", directory, "--recreate", "--json").lines
    orders = document["topics"][1]
    assert (orders["topic"], orders["topic_id"]) == ("orders", TOPIC_ID)
    assert (orders["partitions"], orders["replication_factor"]) == (2, 3)
    assert orders["replicas"] == {"0": [1, 2, 3], "1": [1, 2, 3, 4]}
    assert document["configs"][0]["configs"] == {"listeners": "a,b"}
    assert document["client_quotas"] == [
        {"entity": {"client-id": None, "user": "al ice"},
         "values": {"producer_byte_rate": 1048576.5}}]
    assert document["features"] == {"metadata.version": 27}


def test_a_topic_of_a_script_is_not_a_broker_or_group_of_its_name(
    run: Run, tmp_path: Path
) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    made.write_log(directory, [
        made.topic("1"), made.partition(0), made.config("a", "1", resource="1"),
        made.config("a", "2", resource="1", kind=4),
    ])
    (document,) = run("cluster", directory, "--recreate", "--json", "--topic", "1").lines
    assert document["topics"][0]["configs"] == {"a": "1"}
    assert document["configs"] == []


def test_without_a_metadata_log_directories_are_shown(run: Run, tmp_path: Path) -> None:
    made.write_log(tmp_path / "t-0", [b"x"])
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\n")
    ran = run("cluster", tmp_path)
    assert ran.code == 0
    assert "there is no metadata log" in ran.out
    assert_one_sentence(run("cluster", tmp_path, "--diff", "0..5"), "__cluster_metadata-0")
    assert "note: " in run("cluster", tmp_path, "--recreate").err
