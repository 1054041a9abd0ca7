"""The archives are a function of bytes and recorded mtimes."""
import json
import lzma
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from golden.make import archive


def write_case(data: Path, version: str, *, seed: str | None = None, log: bytes = b"log") -> Path:
    case = data / version / "crash"
    segment = case / "logs" / "crash-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(log)
    answers = {
        "logs": "logs",
        "mtimes_ms": {"crash-0/00000000000000000000.log": 1_500_000_000_123},
    }
    if seed is not None:
        answers["seed"] = seed
    (case / "answers.json").write_text(json.dumps(answers))
    return case


def test_golden_archives_are_what_the_maker_makes_of_their_content(golden_directory, golden
):
    manifest = json.loads((golden_directory / "MANIFEST.json").read_text())
    for version, entry in manifest.items():
        name, case = next(iter(entry["cases"].items()))
        root = golden(version, name, next(iter(case["answers"]))).root.parent
        kept = lzma.decompress((golden_directory / entry["archive"]).read_bytes())
        assert archive.pack_version(root) == kept
        assert archive.list_cases(root) == entry["cases"]


def test_archive_depends_neither_on_disk_mtimes_nor_on_modes(tmp_path):
    write_case(tmp_path, "2.4.0")
    first = archive.pack_version(tmp_path / "2.4.0")
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(7, 7))
        path.chmod(0o700)
    assert archive.pack_version(tmp_path / "2.4.0") == first


def test_archive_names_no_owner_and_two_modes(tmp_path):
    write_case(tmp_path, "2.4.0")
    packed = archive.pack_version(tmp_path / "2.4.0")
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        members = tar.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
    assert {m.mode for m in members if m.isfile()} == {0o644}
    assert {m.mode for m in members if m.isdir()} == {0o755}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_archive_refuses_a_file_whose_mtime_no_answers_report(tmp_path):
    case = write_case(tmp_path, "2.4.0")
    (case / "logs" / "crash-0" / "new").write_bytes(b"")
    with pytest.raises(ValueError, match="crash-0/new"):
        archive.pack_version(tmp_path / "2.4.0")


def test_archive_refuses_answers_of_several_seeds(tmp_path):
    write_case(tmp_path, "2.4.0", seed="one")
    other = write_case(tmp_path / "more", "2.4.0", seed="two")
    other.rename(tmp_path / "2.4.0" / "crash-torn")
    with pytest.raises(ValueError, match=r"'one'.*'two'"):
        archive.write_archives(tmp_path, tmp_path / "out", ["2.4.0"])


def test_manifest_keeps_versions_that_are_not_archived_now(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    write_case(data, "0.10.0.1", seed="one")
    write_case(data, "0.9.0.1", seed="one")
    archive.write_archives(data, out)
    before = json.loads((out / "MANIFEST.json").read_text())
    assert list(before) == ["0.9.0.1", "0.10.0.1"]
    (data / "0.10.0.1" / "crash" / "logs" / "crash-0" / f"{0:020}.log").write_bytes(b"changed")
    archive.write_archives(data, out, ["0.10.0.1"])
    after = json.loads((out / "MANIFEST.json").read_text())
    assert after["0.9.0.1"] == before["0.9.0.1"]
    assert after["0.10.0.1"]["sha256"] != before["0.10.0.1"]["sha256"]
    assert {entry["seed"] for entry in after.values()} == {"one"}
