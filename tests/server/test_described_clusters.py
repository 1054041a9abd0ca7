"""Configurations and features, as KRaft clusters described them at the moments of the archives."""

from __future__ import annotations

import json

import pytest
from metadata.test_cluster_against_brokers import ARCHIVES, MANIFEST, REVIVED_AT
from models.protocol_client import ProtocolClient
from models.seed import some

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.metadata.registrations import ResourceType
from kafkastore.samples.unpacking import unpack_archive
from kafkastore.server import serve

VERSIONS = some(list(MANIFEST), 1, __name__)
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}
MOMENTS_EACH = 4


@pytest.fixture(scope="module", params=VERSIONS)
def archive(request, tmp_path_factory):
    """The version and the unpacked cases of an archive."""
    root = tmp_path_factory.mktemp("metadata")
    unpack_archive(ARCHIVES / MANIFEST[request.param]["archive"], root)
    return request.param, root


def moments(archive):
    """Yield a broker's directory, its id, a moment and the cluster then."""
    version, root = archive
    for name, case in MANIFEST[version]["cases"].items():
        found = json.loads((root / name / "cluster.json").read_text())["moments"]
        for path in sorted((root / name).glob("answers-*.json")):
            answers = json.loads(path.read_text())
            if "broker" not in answers["roles"] or answers["logs"] not in case["logs"]:
                continue
            logs = root / name / answers["logs"]
            for moment in some(found, MOMENTS_EACH, f"{version} {logs.name} {name}"):
                try:
                    cluster = kafkastore.cluster(logs, as_of=moment["offset"])
                except kafkastore.NoMetadataError:
                    continue
                yield logs, answers["node_id"], (name, moment), cluster


def described(client, kind, name):
    """Return the error, and the dynamic configurations with their sources."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = client.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=(resource,), include_synonyms=True
    )
    (found,) = answer["results"]
    return found["error_code"], {
        each["name"]: {"value": each["value"], "source": SOURCES[each["config_source"]]}
        for each in found["configs"] if each["config_source"] in SOURCES
    }


def test_configurations_and_features_are_those_that_the_cluster_had(archive):
    compared = 0
    for logs, node_id, (name, moment), cluster in moments(archive):
        with (
            serve(logs, metadata=cluster) as served,
            ProtocolClient(served.bootstrap_servers) as client,
        ):
            answers = moment["answers"]
            for row in answers["configs"]:
                kind = ResourceType[row["type"]]
                if kind == ResourceType.TOPIC and row["name"] not in served.catalog.topics:
                    continue
                if (name, moment["name"]) in REVIVED_AT and row["name"] == "doomed":
                    continue
                if kind == ResourceType.BROKER and row["name"] not in ("", str(node_id)):
                    assert described(client, kind, row["name"])[0] == ErrorCode.INVALID_REQUEST
                    continue
                error, found = described(client, kind, row["name"])
                assert error == ErrorCode.NONE
                theirs = {
                    each: entry for each, entry in row["entries"].items()
                    # Of the broker that was asked, which may be another.
                    if kind != ResourceType.TOPIC or entry["source"] != SOURCES[2]
                }
                ours = {
                    each: entry for each, entry in found.items()
                    if kind != ResourceType.TOPIC or entry["source"] != SOURCES[2]
                }
                assert ours == theirs, (name, moment["name"], row["type"], row["name"])
                compared += len(theirs)
            versions = client.ask(ApiKey.API_VERSIONS, 3)
            features = {
                each["name"]: each["max_version_level"] for each in versions["finalized_features"]
            }
            assert features == {
                each: highest for each, (_, highest) in answers["features"]["finalized"].items()
            }
            assert versions["finalized_features_epoch"] == cluster.end_offset - 1
    assert compared > 10
