"""Wheels: the same sources give the same bytes, what is in them, and the first minute with one."""
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile

import pytest
from cli.examples import blocks_of, commands_of, run_command

FOREIGN = "musllinux_1_2_aarch64"  # never this machine's own


@pytest.fixture(scope="module")
def tool(pytestconfig, tmp_path_factory):
    """A Python with what `make wheels` installs."""
    folder = tmp_path_factory.mktemp("tool")
    config = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())
    packages = config["dependency-groups"]["wheels"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *packages], check=True)
    return folder / "bin/python"


def build(root, tool, folder, tag=FOREIGN):
    """Build an sdist and a wheel; return their hashes. Nothing in caches helps."""
    ran = subprocess.run(
        [tool, root / "packaging/wheels.py", folder, "--platform", tag,
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


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="macOS has wheels of its own")
def test_the_first_minute_needs_half_a_minute_and_no_compiler_git_or_java(
    pytestconfig, tool, tmp_path, monkeypatch
):
    tag = f"manylinux_2_28_{platform.machine()}"
    build(pytestconfig.rootpath, tool, tmp_path / "dist", tag)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("env", "readlink", "sh"):  # of these the command is made
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "tour").mkdir()

    started, before = time.monotonic(), os.times()
    installed = tmp_path / "venv/bin"
    subprocess.run([sys.executable, "-m", "venv", installed.parent], check=True)
    subprocess.run(
        [installed / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel],
        check=True,
    )
    for block in blocks_of(pytestconfig.rootpath / "README.md"):
        if block.language == "console":
            for command in commands_of(block):
                run_command(command, tmp_path / "tour", programs=installed)
    after = os.times()
    processor = sum(after[2:4]) - sum(before[2:4])  # of children: it does not depend on others
    print(f"{time.monotonic() - started:.1f} s, {processor:.1f} s of processor time")
    assert (tmp_path / "tour/up.json").is_file()
    assert 1 < processor < 30


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
