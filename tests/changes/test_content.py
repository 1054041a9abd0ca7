import shutil

import pytest

from kafkastore.changes.new_bytes import chunks_of
from kafkastore.changes.plan import Inline, InvalidPlanError, Prefix, Rebuilt
from kafkastore.segment.recovery import rebuild_indexes


def written(content, path):
    return b"".join(chunks_of(content, path))


def test_inline_content_is_written_as_it_is(tmp_path):
    assert written(Inline(b"\0abc"), tmp_path / "missing") == b"\0abc"


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_prefix_is_the_first_bytes_of_the_file(tmp_path, length):
    path = tmp_path / "00000000000000000000.log"
    data = bytes(range(256)) * (3 << 12)
    path.write_bytes(data)
    assert written(Prefix(length), path) == data[:length]


def test_a_prefix_of_a_file_that_shrank_is_shorter(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"abc")
    assert written(Prefix(10), path) == b"abc"


@pytest.mark.parametrize("interval", [0, 200, 4096])
def test_an_index_is_rebuilt_from_the_log_next_to_it(golden, tmp_path, interval):
    logs = golden("0.10.0.1", "upgrade", "answers").logs
    source = sorted(logs.glob("up-0/*.log"))[1]
    log = tmp_path / source.name
    shutil.copy(source, log)
    rebuilt = rebuild_indexes(log, int(log.stem), index_interval_bytes=interval)
    assert written(Rebuilt(interval), log.with_suffix(".timeindex")) == rebuilt.time_index != b""
    assert written(Rebuilt(interval), log.with_suffix(".index")) == rebuilt.offset_index


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log",
        "00000000000000000000.timeindex.swap",
        "00000000000000000000.txnindex",
        "meta.properties",
    ],
)
def test_other_files_are_not_rebuilt(tmp_path, name):
    with pytest.raises(InvalidPlanError) as refusal:
        written(Rebuilt(4096), tmp_path / name)
    assert refusal.value.path == tmp_path / name
