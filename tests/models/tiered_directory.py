"""The golden directories of brokers with tiered storage, and what those brokers answered."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import kafkastore
from kafkastore.log.partition_files import read_topic_id
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.samples.unpacking import unpack_archive
from kafkastore.writing.log_config import LogConfig

ARCHIVES = Path(__file__).parents[1] / "golden" / "tiered"
MANIFEST = json.loads((ARCHIVES / "MANIFEST.json").read_text())
VERSIONS = tuple(MANIFEST)
#: The newest rules that each broker follows.
RULES = {"3.9.1": "3.9", "4.3.1": "4.2"}
NOTHING = (-1, -1, -1)


@dataclass(frozen=True)
class TieredDirectory:
    """The log directory of a stopped broker."""

    version: str
    root: Path

    @property
    def logs(self):
        return self.root / "tiered" / "logs"

    @property
    def rules(self):
        return RULES[self.version]

    @cached_property
    def answers(self):
        return json.loads((self.root / "tiered" / "answers.json").read_text())

    @property
    def topics(self):
        return [name.removesuffix("-0") for name in self.answers["partitions"]]

    def rows(self, topic):
        """The broker's answers about a topic: rows with question and answer."""
        return self.answers["partitions"][f"{topic}-0"]["list_offsets"]

    def broker_offset(self, topic, timestamp):
        """The offset that the broker answered for a special timestamp."""
        (row,) = (row for row in self.rows(topic) if row["timestamp"] == timestamp)
        return row["offset"]

    def config(self, topic):
        options = self.answers["topic_config"][topic]
        return LogConfig.of({
            name.removeprefix("internal."): value for name, value in options.items()
        })

    def storage(self, topic) -> RemoteStorage:
        return self.config(topic).remote_storage

    def topic_id(self, topic):
        return read_topic_id(self.logs / f"{topic}-0")

    def copy_to(self, path):
        """A copy of the log directory, to alter."""
        return Path(shutil.copytree(self.logs, path))

    def log(self, topic, *, configured=True):
        """A partition, which knows the topic's configuration or not."""
        log = kafkastore.open(self.logs)[topic, 0]
        if configured:
            log.remote_storage = self.storage(topic)
        return log


def unpack(version, root):
    """Unpack the archive of a version."""
    unpack_archive(ARCHIVES / MANIFEST[version]["archive"], root)
    return TieredDirectory(version, root)


def epoch_of(rows):
    """The partition's leader epoch, from the answer for the log end."""
    (row,) = (row for row in rows if row["timestamp"] == -1)
    return row["leader_epoch"]


def in_broker_form(found):
    """An answer as a row of a response: timestamp, offset, leader epoch."""
    if found is None:
        return NOTHING
    return found.timestamp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch
