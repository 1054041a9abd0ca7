"""Wheels: the same sources give the same bytes, and what is in them besides Python files."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

PLATFORM = "musllinux_1_2_aarch64"  # never this machine's own


@pytest.fixture(scope="module")
def tool(pytestconfig, tmp_path_factory):
    """A Python with what `make wheels` installs."""
    folder = tmp_path_factory.mktemp("tool")
    config = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())
    packages = config["dependency-groups"]["wheels"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *packages], check=True)
    return folder / "bin/python"


def build(root, tool, folder):
    """Build an sdist and a wheel; return their hashes. Nothing in caches helps."""
    ran = subprocess.run(
        [tool, root / "packaging/wheels.py", folder, "--platform", PLATFORM,
         "--python", f"python3.{sys.version_info.minor}"],
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "HOME": str(folder.parent)},
        capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(list(folder.iterdir())) == 2
    return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="macOS has wheels of its own")
def test_two_builds_in_different_folders_give_the_same_bytes(pytestconfig, tool, tmp_path):
    first = build(pytestconfig.rootpath, tool, tmp_path / "a/first")
    (sdist,) = (tmp_path / "a/first").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive} == {1700000000}
        archive.extractall(tmp_path / "elsewhere", filter="data")
    (unpacked,) = (tmp_path / "elsewhere").iterdir()
    assert build(unpacked, tool, tmp_path / "b/second") == first
    (wheel,) = (tmp_path / "b/second").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (sbom,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        assert json.loads(archive.read(sbom))["bomFormat"] == "CycloneDX"
        for name in archive.namelist():
            content = archive.read(name)
            assert str(tmp_path).encode() not in content
            assert str(pytestconfig.rootpath).encode() not in content


def test_list_of_the_c_sources_has_the_versions_that_their_headers_state(pytestconfig):
    vendor = pytestconfig.rootpath / "kafkastore/formats/records/vendor"
    listed = {
        component["name"]: component["version"]
        for component in json.loads((vendor / "vendor.cdx.json").read_text())["components"]
    }

    def stated(header, name):
        text = (vendor / header).read_text()
        parts = (
            re.search(rf"define {name}_VERSION_{part} +(\d+)", text)[1]
            for part in ("MAJOR", "MINOR", "RELEASE")
        )
        return ".".join(parts)

    deflate = re.search(
        r'VERSION_STRING\s+"([\d.]+)"', (vendor / "libdeflate/libdeflate.h").read_text()
    )
    translated = (vendor / "snappy_decompress.h").read_text()
    commit = re.search(r"commit\s+\*\s*([0-9a-f]{40})", translated)
    assert listed == {
        "libdeflate": deflate[1], "lz4": stated("lz4.h", "LZ4"), "zstd": stated("zstd.h", "ZSTD"),
        "snappy": commit[1],
    }
