"""Modification times stored in a file."""
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafkastore.legacy import InvalidMtimesError, mtimes_of, pack_mtimes, read_mtimes
from kafkastore.legacy.mtimes import names_a_segment

import kafkastore


def test_the_noted_times_of_a_directory_are_those_of_its_files(golden):
    case = golden("2.4.0", "create-time-out-of-order", "answers")
    store = kafkastore.open(case.logs)
    noted = mtimes_of(store)
    recorded = case.answers["mtimes_ms"]
    logs = [name for name in recorded if name.endswith(".log")]
    assert noted == {name: recorded[name] for name in logs}
    assert list(mtimes_of([store["ooo-3"]])) == [name for name in noted if "ooo-3/" in name]


def test_survey_s_times_are_the_same(golden):
    case = golden("0.10.0.1", "upgrade", "answers")
    noted = mtimes_of(kafkastore.open(case.logs))
    assert kafkastore.migration.survey(case.logs, read_logs=False).mtimes == noted


NAMES = st.from_regex(r"[a-zé]{1,5}-[0-9]/[0-9]{20}\.log", fullmatch=True)


@given(st.dictionaries(NAMES, st.integers(-(1 << 63), (1 << 63) - 1)))
def test_written_times_are_read_unchanged(tmp_path_factory, mtimes):
    path = tmp_path_factory.mktemp("mtimes") / "mtimes.json"
    path.write_bytes(pack_mtimes(mtimes))
    assert read_mtimes(path) == mtimes


def test_both_formats_are_read(tmp_path, golden):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    assert read_mtimes(case.root / "answers.json") == case.answers["mtimes_ms"]
    path = tmp_path / "mtimes.json"
    path.write_text('{"t-0/00000000000000000000.log": 5}')
    assert read_mtimes(path) == {"t-0/00000000000000000000.log": 5}
    path.write_text('{"mtimes_ms": 5}')     # also a valid file name
    assert read_mtimes(path) == {"mtimes_ms": 5}


@pytest.mark.parametrize(
    ("text", "is_json", "named"),
    [
        ("", False, ""),
        ('{"a": ', False, ""),
        ("\x80", False, ""),
        ("[" * 100_000, False, ""),
        ("[1]", True, ""),
        ("null", True, ""),
        ('{"a.log": "5"}', True, "a.log"),
        ('{"a.log": 1.5}', True, "a.log"),
        ('{"a.log": true}', True, "a.log"),
        ('{"a.log": null}', True, "a.log"),
        ('{"a.log": {"b": 1}}', True, "a.log"),
        ('{"a.log": 9223372036854775808}', True, "a.log"),
        ('{"mtimes_ms": {"a.log": []}}', True, "a.log"),
    ],
)
def test_an_invalid_file_of_modification_times_is_refused(tmp_path, text, is_json, named):
    path = tmp_path / "mtimes.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidMtimesError) as caught:
        read_mtimes(path)
    assert str(path) in str(caught.value)
    assert (caught.value.__cause__ is None) == is_json
    assert named in str(caught.value)


@given(st.binary(max_size=40) | st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_times_or_raise_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("mtimes") / "mtimes.json"
    path.write_bytes(data)
    try:
        read = read_mtimes(path)
    except InvalidMtimesError:
        return
    assert all(type(mtime) is int for mtime in read.values())


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_mtimes(tmp_path / "none.json")


def test_a_segment_is_found_by_path_and_by_name(golden):
    log = kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)["mono-0"]
    name = os.path.basename(log.segments[1].log_path)
    assert names_a_segment({name: 1}, log)
    assert names_a_segment({f"mono-0/{name}": 1}, log)
    assert not names_a_segment({f"mono-1/{name}": 1, "mono-0/00000000000000000000.index": 1}, log)
    assert not names_a_segment({}, log)
