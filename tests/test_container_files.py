"""The Dockerfile, the manifests for Kubernetes and their guide state the same as the project."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[1]
MANIFESTS = sorted((ROOT / "packaging/kubernetes").glob("*.yaml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GUIDE = (ROOT / "docs/containers.md").read_text()
#: The oldest release that gets fixes from many vendors, and the newest with a schema.
RELEASES = ["1.29", kubernetes_validate.latest_version()]


def constant(name: str) -> Any:
    """Read a constant of image.py without running it."""
    for node in ast.parse((ROOT / "packaging/image.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"image.py has no {name}")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pod_of(path: Path) -> dict[str, Any]:
    return documents(path)[0]["spec"]["template"]["spec"]


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    program = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")
    bad = subprocess.run(
        [program, "-"], input=DOCKERFILE.replace("debian:12-slim", "debian"),
        capture_output=True, text=True,
    )
    assert "DL3006" in bad.stdout  # it does check


def test_dockerfile_states_what_the_project_and_the_program_do() -> None:
    label = re.compile(r'^LABEL org\.opencontainers\.image\.(\w+)="(.*)"$', re.MULTILINE)
    labels = dict(label.findall(DOCKERFILE))
    assert labels == {
        "title": PROJECT["name"], "description": PROJECT["description"],
        "licenses": PROJECT["license"],
    }
    user = constant("USER")
    assert f"\nUSER {user}:{user}\n" in DOCKERFILE
    assert f"| user | {user}, not root" in GUIDE
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line.removeprefix("!") for line in ignored if line.startswith("!")] == [
        "dist/*.whl", "packaging/image.py",
    ]


def test_the_small_extras_are_those_of_serve() -> None:
    small = set(constant("SMALL"))
    of_serve = {re.split("[<>=]", each)[0] for each in PROJECT["optional-dependencies"]["serve"]}
    assert small == of_serve - {"pyarrow"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_follow_the_schema_of_kubernetes(path: Path, release: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, release, strict=True)
    misspelt = path.read_text().replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(next(yaml.safe_load_all(misspelt)), release, strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_give_no_rights_and_mount_the_volume_read_only(path: Path) -> None:
    pod = pod_of(path)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    claims = {each["name"]: each for each in pod["volumes"] if "persistentVolumeClaim" in each}
    assert claims["kafka-logs"]["persistentVolumeClaim"]["readOnly"] is True
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts["kafka-logs"] == {
        "name": "kafka-logs", "mountPath": "/kafka-logs", "readOnly": True,
    }
    assert set(mounts) == {"kafka-logs", "tmp"}
    for word in ("IMAGE", "CLAIM"):
        assert word in path.read_text()
        assert f"`{word}`" in GUIDE


def test_the_service_leads_to_the_server() -> None:
    deployment, service = documents(ROOT / "packaging/kubernetes/serve.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = pod_of(ROOT / "packaging/kubernetes/serve.yaml")["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    arguments = dict(each[2:].split("=") for each in container["args"] if "=" in each)
    assert arguments == {
        "listen": f"0.0.0.0:{ports['kafka']}", "metrics": f"0.0.0.0:{ports['metrics']}",
        "advertise": f"{service['metadata']['name']}:{ports['kafka']}",
    }
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
