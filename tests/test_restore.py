"""The steps of docs/restore.md, without a broker and with real ones."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.examples import Command, blocks_in, commands_of, run_command
from golden.make import load_into_broker as loading
from golden.make.brokers import WORK, class_path
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java import ClassArchive, compiled, java_command
from golden.make.java_client import JavaClients
from golden.make.server_properties import Mode
from models.disk_contents import everything_in, overwrite
from models.seed import some
from use_cases.stores import commit

import kafkastore
from kafkastore import LogDirWriter, migration

DOCUMENT = Path(__file__).parents[1] / "docs" / "restore.md"
TEXT, _, OTHER_WAYS = DOCUMENT.read_text(encoding="utf-8").partition(
    "## Without access to a broker's disk"
)
OTHER_WAYS, _, _ = OTHER_WAYS.partition("## Three disks, no cluster")
CONSOLE = [(block.language, each) for block in blocks_in(TEXT)
           if block.language in ("console", "sh") for each in commands_of(block)]
#: The page's programs of Kafka, and the classes of 2.4.0 that work with all brokers here.
TOOLS = {
    "kafka-topics.sh": "kafka.admin.TopicCommand",
    "kafka-consumer-groups.sh": "kafka.admin.ConsumerGroupCommand",
    "kafka-console-consumer.sh": "kafka.tools.ConsoleConsumer",
}
LOST = {36, 63}
GROUP_READER = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
public class GroupReader {
    public static void main(String[] arguments) {
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0], "group.id", "returning", "auto.offset.reset",
            "earliest", "enable.auto.commit", "false", "max.poll.records", "10",
            "key.deserializer", bytes, "value.deserializer", bytes));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(arguments[3]);
            int wanted = Integer.parseInt(arguments[2]);
            for (int got = 0; got < wanted && System.currentTimeMillis() < end; )
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(300))) {
                    System.out.println(each.offset());
                    got++;
                }
            consumer.commitSync();
        }
    }
}
"""


@pytest.fixture
def scene(golden: Callable[..., Any], tmp_path: Path) -> Path:
    """The directories that the page names, of brokers that were killed."""
    disk = tmp_path / "disk/kafka-logs"
    shutil.copytree(golden("2.4.0", "crash-bad-crc", "answers").logs, disk)
    for segment in kafkastore.open(disk)["crash", 0].segments:
        with segment.open_log() as log:
            batches = [position for run in log.runs() for position in run.headers["position"]]
        overwrite(segment.log_path, *((at + 12, bytes([0, 0, 0, 7])) for at in batches))
    overwrite(disk / "crash-0" / f"{28:020}.log", (1200, b"\xff\x00"))
    overwrite(disk / "crash-0" / "leader-epoch-checkpoint", (4, b"7"))
    with LogDirWriter(tmp_path / "written", "2.4") as log_dir:
        log_dir.writer("__consumer_offsets", 0).append_records(
            [commit("audit", "crash", 0, 64), commit("billing", "crash", 0, 40)]
        )
    shutil.move(tmp_path / "written/__consumer_offsets-0", disk)
    shutil.rmtree(tmp_path / "written")
    old = golden("0.10.0.1", "crash-bad-crc", "answers").logs
    shutil.copytree(old, tmp_path / "old-disk/kafka-logs")
    return tmp_path


def _records(root: Path) -> list[Any]:
    """The records of a reader, in the form of the answers files, but without base64."""
    (log,) = (each for each in kafkastore.open(root) if each.topic == "crash")
    return [(each.offset, each.timestamp, each.key, each.value) for each in log.records()]


def test_every_command_prints_what_the_page_shows_and_the_disks_stay(scene: Path) -> None:
    new = scene / "new" / "kafka-logs"
    new.parent.mkdir()
    with LogDirWriter(new, "3.9") as log_dir:
        log_dir.writer("crash", 0)
    metadata = new / "crash-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: dEYBbYzqQe2ua4s0PmjpMA\n")
    disks = scene / "disk", scene / "old-disk"
    before, kept = [everything_in(disk) for disk in disks], metadata.read_bytes()
    for language, command in CONSOLE:
        if language == "console":
            run_command(command, scene)
    for block in blocks_in(OTHER_WAYS):
        for command in commands_of(block) if block.language == "console" else ():
            run_command(command, scene)
    assert [everything_in(disk) for disk in disks] == before
    assert metadata.read_bytes() == kept
    restored = {offset for offset, *_ in _records(new)}
    assert restored == set(range(64)) - LOST
    assert [offset for offset, *_ in _records(scene / "old-restored/kafka-logs")] == [*range(63)]
    for name in ("restored", "old-restored"):
        for area in sorted((scene / name).glob("*.kafkastore-undo-*"), reverse=True):
            assert list((area / "kept").rglob("*.log"))


def test_the_way_back_leads_to_the_disk_as_it_was(scene: Path) -> None:
    areas: list[Path] = []
    for _, command in CONSOLE:
        if re.match(r"cp -a|kafkastore (repair|convert) ", command.line):
            run_command(command, scene)
            areas += set(scene.glob("*/*.kafkastore-undo-*")) - set(areas)
    assert len(areas) == 4
    for area in reversed(areas):
        run_command(Command(f"kafkastore changes undo {area}", "undone: ...\n"), scene)
        run_command(Command(f"kafkastore changes remove {area} --yes", "removed ...\n"), scene)
    for disk, copy in (("disk", "restored"), ("old-disk", "old-restored")):
        assert everything_in(scene / copy) == everything_in(scene / disk)


def test_every_page_and_chapter_that_is_named_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    chapters = {"#" + re.sub(r"[^a-z0-9 ]", "", each.lower()).replace(" ", "-") for each in titles}
    links = re.findall(r"\]\(([^)#]*)(#[a-z0-9-]+)?\)", text)
    assert len(links) > 2
    for path, chapter in links:
        assert (DOCUMENT.parent / path).is_file() if path else chapter in chapters, (path, chapter)
    linked_from = (DOCUMENT.parent / "conversion.md").read_text(encoding="utf-8")
    (chapter,) = re.findall(r"\(restore\.md(#[a-z0-9-]+)\)", linked_from)
    assert chapter in chapters


@contextmanager
def _programs(folder: Path) -> Iterator[None]:
    """Put Kafka's programs where the page's commands find them."""
    folder.mkdir()
    archives = {name: ClassArchive(f"2.4.0-{TOOLS[name]}", WORK) for name in TOOLS}
    for name, main_class in TOOLS.items():
        options = archives[name].options
        command = java_command(
            class_path("2.4.0", WORK), main_class, logs_as="client", options=options
        )
        quoted = " ".join(f"'{part}'" for part in command)
        (folder / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        (folder / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield
    for archive in archives.values():
        archive.keep()


def _forget_the_log(logs: Path) -> None:
    """Leave a stopped broker as one that was stopped before it created the log."""
    shutil.rmtree(logs / "crash-0")


def _replace_the_disk(logs: Path) -> None:
    """Leave a stopped broker with a new disk: empty, or formatted if it is of KRaft."""
    properties = (logs / "meta.properties").read_text()
    shutil.rmtree(logs)
    logs.mkdir()
    if "node.id" in properties:
        new_id = f"directory.id={urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
        formatted = re.sub(r"directory\.id=.*", new_id, properties)
        (logs / "meta.properties").write_text(formatted)


#: What a stopped broker has of the new topic.
NEW_LOGS: dict[str, Callable[[Path], None]] = {
    "an empty log": lambda _: None,
    "no directory": _forget_the_log,
    "a new disk": _replace_the_disk,
}


@pytest.mark.kafka
@pytest.mark.parametrize(("version", "mode", "state"), some([
    (version, mode, state)
    for version, mode in (("2.4.0", "zk"), ("3.9.1", "zk"), ("3.9.1", "kraft"), ("4.3.1", "kraft"))
    for state in NEW_LOGS
], 1, __name__))
def test_a_new_cluster_serves_every_record_of_the_disk(
    require_broker: Callable[[str], None], scene: Path, monkeypatch: pytest.MonkeyPatch,
    version: str, mode: Mode, state: str,
) -> None:
    require_broker(version)
    require_broker("2.4.0")
    around = JavaClients(WORK)
    with around as clients, _programs(scene / "programs"):
        context = CaseContext(version, "load", scene / "out", Surroundings("load", WORK, clients))
        try:
            context.start(mode=mode)
            cluster = context.cluster
            (scene / "new").mkdir()
            (scene / "new" / "kafka-logs").symlink_to(cluster.logs)
            monkeypatch.setenv("NEW", cluster.address)
            monkeypatch.setenv("BROKER", "0" if mode == "zk" else "1")
            for language, command in CONSOLE:
                if command.line == "systemctl stop kafka":
                    cluster.wait_for_leaders("crash", 1)
                    context.stop()
                    NEW_LOGS[state](cluster.logs)
                elif command.line == "systemctl start kafka":
                    context.partitions["crash"] = 1
                    context.start()
                elif language != "console":
                    _follow(command, scene)
                elif state != "a new disk" or not command.line.startswith("kafkastore predict new"):
                    run_command(_with_topic_ids(command, cluster.logs), scene)
            context.ask("crash")
            said = context.answers["crash-0"]
            described = _follow(_the_command("kafka-consumer-groups.sh", "--describe"), scene)
            context.stop()
            logged = "\n".join(context.log_lines("crash-0"))
        finally:
            context.abandon()
            context.remove_run_directory()
    restored = kafkastore.open(scene / "restored/kafka-logs")["crash", 0]
    offsets = [record.offset for record in restored.records()]
    assert [row[0] for row in said["records"]] == offsets == sorted(set(range(64)) - LOST)
    assert [row[1] for row in said["records"]] == [each.timestamp for each in restored.records()]
    assert said["log_end_offset"] == 63
    for group, offset in (("audit", 63), ("billing", 40)):
        assert re.search(rf"^{group} +crash +0 +{offset} +63 +{63 - offset} ", described, re.M)
    assert "orrupt" not in logged
    if state != "a new disk":  # without a marker of a clean shutdown, the broker recovers logs
        assert "rebuilding index" not in logged


def _with_topic_ids(command: Command, logs: Path) -> Command:
    """Return the page's command with the option that it has for a missing directory."""
    if not command.line.startswith("kafkastore restore") or (logs / "crash-0").exists():
        return command
    if not any(logs.iterdir()):
        return command._replace(line=f"{command.line} --without-topic-ids")
    metadata = logs.parent / "metadata"  # these brokers have it in a directory of its own
    option = f" --metadata {metadata}" if metadata.exists() else ""
    return command._replace(line=f"{command.line}{option}")


def _the_command(*parts: str) -> Command:
    """Return the page's command that contains these words."""
    (found,) = (each for _, each in CONSOLE if all(part in each.line for part in parts))
    return found


def _follow(command: Command, folder: Path) -> str:
    """Run a command whose output the page does not show."""
    done = subprocess.run(
        ["sh", "-c", command.line], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=800, check=False,
    )
    printed = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"$ {command.line}\n{printed}"
    if "--max-messages" in command.line:
        wanted = command.line.partition("--max-messages ")[2].split()[0]
        assert f"Processed a total of {wanted} messages" in printed
    return printed


def _read_as_group(
    version: str, address: str, topic: str, wanted: int, seconds: int
) -> list[int]:
    """Let a consumer group continue reading until it has that many records; their offsets."""
    name = "GroupReader"
    jar = compiled(version, name, GROUP_READER, class_path(version, WORK), WORK)
    archive = ClassArchive(jar.stem, WORK)
    done = subprocess.run(
        java_command(
            class_path(version, WORK, jar), name, address, topic, str(wanted), str(seconds),
            logs_as="client", options=archive.options,
        ),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=800,
    )
    archive.keep()
    return [int(line) for line in done.stdout.split()]


@pytest.mark.kafka
@pytest.mark.parametrize("is_lowered", some([True, False], 1, "epochs"))
def test_groups_come_back_if_leader_epochs_are_those_of_a_new_topic(
    golden: Callable[..., Any], require_broker: Callable[[str], None], writable_copy: Any,
    tmp_path: Path, is_lowered: bool,
) -> None:
    version = "4.3.1"
    require_broker(version)
    logs = writable_copy(golden("3.9.1", "leader-epochs", "answers").logs)
    partition = logs / "epochs-0"
    if is_lowered:
        kafkastore.apply(migration.plan_convert(logs, leader_epoch=0))
    offsets = [record.offset for record in kafkastore.open(logs)["epochs", 0].records()]
    with loading.broker_on([partition], version, tmp_path / "out") as context:
        address = context.cluster.address
        first = _read_as_group(version, address, "epochs", len(offsets) - 5, 60)
        again = _read_as_group(version, address, "epochs", 1, 60 if is_lowered else 12)
        context.stop()
    # The group stopped within the records of the largest epoch.
    assert first == offsets[: len(first)]
    assert first[-1] > 24
    assert again == (offsets[len(first):] if is_lowered else [])
