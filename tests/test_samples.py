"""The samples that the package ships are the golden directories from before the time index."""
import tarfile
from pathlib import Path

import pytest

from kafkastore import samples
from kafkastore.errors import KafkaStoreError
from kafkastore.samples.unpacking import unpack_archive


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def test_samples_are_named_by_broker_oldest_first():
    assert samples.names() == ("0.8.2.2", "0.9.0.1", "0.10.0.1")


def test_samples_equal_the_golden_directories_in_bytes_and_mtimes(
    tmp_path, golden, golden_directory, pytestconfig
):
    if golden_directory != Path(pytestconfig.rootpath, "tests", "golden"):
        pytest.skip("the samples were made from the default archives")
    roots = samples.unpack(tmp_path)
    assert [root.name for root in roots] == list(samples.names())
    for version, root in zip(samples.names(), roots, strict=True):
        assert contents(root) == contents(golden(version, "upgrade", "answers").logs)


def test_samples_have_messages_but_no_time_index(tmp_path):
    for root in samples.unpack(tmp_path):
        assert not list(root.rglob("*.timeindex"))
        assert sum(path.stat().st_size for path in root.rglob("*.log")) > 10_000


def test_unpack_makes_the_destination_and_its_parents(tmp_path):
    roots = samples.unpack(tmp_path / "not" / "there")
    assert all(root.parent == tmp_path / "not" / "there" for root in roots)


def test_unpack_leaves_nothing_but_the_samples(tmp_path):
    samples.unpack(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(samples.names())


def test_unpack_refuses_a_directory_that_is_not_empty(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(KafkaStoreError, match="mine"):
        samples.unpack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_unpack_refuses_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(KafkaStoreError, match="file"):
        samples.unpack(file)


def test_unpack_that_fails_midway_leaves_complete_samples_only(tmp_path, monkeypatch):
    unpack_archive = samples.unpack_archive

    def fail_at_the_second(archive: Path, destination: Path) -> None:
        unpack_archive(archive, destination)
        if archive.name.startswith("0.9"):
            raise OSError("no space left on device")

    monkeypatch.setattr(samples, "unpack_archive", fail_at_the_second)
    with pytest.raises(OSError, match="space"):
        samples.unpack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0.8.2.2"]


def test_unpacking_keeps_mtimes_to_the_nanosecond_and_modes(tmp_path):
    archive = tmp_path / "one.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("topic-0/00000000000000000000.log")
        member.pax_headers = {"mtime": "1795166408.123456789"}  # no float holds this
        tar.addfile(member)
        directory = tarfile.TarInfo("topic-0")
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        directory.pax_headers = {"mtime": "1500000000.000000001"}
        tar.addfile(directory)
    unpack_archive(archive, tmp_path)
    log = tmp_path / "topic-0" / "00000000000000000000.log"
    assert log.stat().st_mtime_ns == 1_795_166_408_123_456_789
    assert log.parent.stat().st_mtime_ns == 1_500_000_000_000_000_001


def test_unpacking_refuses_members_that_lead_outside(tmp_path):
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(tarfile.FilterError):
        unpack_archive(archive, inside)
    assert not (tmp_path / "outside").exists()
