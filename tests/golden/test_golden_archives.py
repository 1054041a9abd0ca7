"""The golden archives match the manifest, and unpack with the recorded mtimes."""
import hashlib
import json
import os
from pathlib import Path

import pytest


def files_below(directory: Path) -> set[str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix() for path in files}


def test_archives_are_those_of_the_manifest(golden_directory):
    manifest = json.loads((golden_directory / "MANIFEST.json").read_text())
    archives = {path.name: path.read_bytes() for path in golden_directory.glob("*.tar.xz")}
    described = {entry["archive"]: entry for entry in manifest.values()}
    assert set(archives) == set(described)
    for name, entry in described.items():
        assert len(archives[name]) == entry["size"]
        assert hashlib.sha256(archives[name]).hexdigest() == entry["sha256"]


def test_answers_are_of_the_version_and_case_that_the_manifest_says(golden_case):
    answers = golden_case.answers
    assert answers["logs"] == golden_case.logs.name
    if golden_case.answers_name.startswith("answers-upgraded-"):
        assert golden_case.answers_name.split("-")[2] == answers["kafka"]
    else:
        assert answers["kafka"] == golden_case.version
    assert answers["case"] == golden_case.name or answers["case"] == "broken-index"


def test_unpacked_files_have_the_recorded_mtimes_to_the_nanosecond(golden_case):
    recorded = golden_case.answers["mtimes_ms"]
    assert files_below(golden_case.logs) == set(recorded)
    unpacked = {name: (golden_case.logs / name).stat().st_mtime_ns for name in recorded}
    assert unpacked == {name: ms * 1_000_000 for name, ms in recorded.items()}


@pytest.mark.golden_cases(names="broken-index-*")
def test_corrupt_directories_have_the_mtimes_from_before_the_restart(golden_case):
    recorded = golden_case.answers["mtimes_before_ms"]
    damaged = golden_case.root / "logs"
    assert files_below(damaged) == set(recorded)
    unpacked = {name: (damaged / name).stat().st_mtime_ns for name in recorded}
    assert unpacked == {name: ms * 1_000_000 for name, ms in recorded.items()}


def test_directories_of_a_case_are_those_of_the_manifest(golden_case, golden_directory):
    manifest = json.loads((golden_directory / "MANIFEST.json").read_text())
    case = manifest[golden_case.version]["cases"][golden_case.name]
    on_disk = sorted(path.name for path in golden_case.root.iterdir() if path.is_dir())
    assert on_disk == case["logs"]
    assert set(case["answers"].values()) <= set(on_disk)


@pytest.mark.golden_cases(names="create-time-monotonic")
def test_writable_copy_keeps_bytes_and_mtimes_and_is_apart(golden_case, writable_copy):
    original = golden_case.logs
    copy = writable_copy(original)
    assert files_below(copy) == files_below(original)
    for name in files_below(original):
        assert (copy / name).read_bytes() == (original / name).read_bytes()
        assert (copy / name).stat().st_mtime_ns == (original / name).stat().st_mtime_ns
    os.utime(copy / "mono-0" / "00000000000000000000.log", ns=(1, 1))
    assert (original / "mono-0" / "00000000000000000000.log").stat().st_mtime_ns != 1
