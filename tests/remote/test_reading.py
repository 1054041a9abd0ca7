"""A store in S3 gives the same results as the same store on a local disk."""
from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from remote.conftest import S3

import kafkastore
from kafkastore import NotALogDirectoryError, PartitionLog
from kafkastore.log.log_dir import LogDir
from kafkastore.remote.stores import RemoteStore

CASES = ["transactions", "codecs", "old-formats", "crash-*", "compacted", "preallocate-killed"]


def results_of(log: PartitionLog) -> dict[str, Any]:
    """Return the results of the main functions for a partition."""
    try:
        records: Any = [row for batch in log.to_arrow() for row in batch.to_pylist()]
    except kafkastore.CorruptionError as error:
        records = error.reason, error.position
    times = sorted({
        time + step
        for segment in log.segments
        for time in (segment.last_modified_ms, segment.largest_record_timestamp("trust") or 0)
        for step in (-1, 0, 1)
        if time + step >= 0
    })
    answers = {}
    for rules in ("correct", "kip-33", "2.4", "4.1"):
        for time in times:
            try:
                answers[rules, time] = log.offset_for_timestamp(time, rules)
            except kafkastore.CorruptionError as error:
                answers[rules, time] = error.reason, error.position
    return {
        "bounds": (log.log_start_offset, log.log_end_offset),
        "records": records,
        "answers": answers,
        "segments": [
            (each.base_offset, each.size, each.last_modified_ns, each.largest_timestamp_by_index)
            for each in log.segments
        ],
    }


@pytest.mark.golden_cases(names=CASES, versions=["0.8.2.2", "2.4.0"], answers="answers")
def test_all_results_are_those_of_the_local_store(
    golden_case: Any,
    s3: S3,
    poisoned: None,
    whole_seconds: Callable[[Path], Path],
) -> None:
    local = whole_seconds(golden_case.logs)
    url = s3.put(local, golden_case.name)
    here, there = kafkastore.open(local), kafkastore.open(url)
    assert list(there.partitions) == list(here.partitions)
    for topic_partition in here.partitions:
        assert results_of(there[topic_partition]) == results_of(here[topic_partition])
    for ask in (kafkastore.verify, lambda path: kafkastore.predict_start(path, "2.4")):
        said = [re.sub(" at 0x.*?>", "", repr(each)) for each in ask(url)]
        said = [each.replace(url, str(local)).replace("RemotePath", "PosixPath") for each in said]
        assert said == [
            re.sub(" at 0x.*?>", "", repr(each)) for each in ask(local)
        ]


def test_a_partition_directory_is_opened_by_its_url(s3: S3, golden: Any) -> None:
    case = golden("2.4.0", "transactions", "answers")
    url = s3.put(case.logs, "logs")
    name = next(iter(kafkastore.open(case.logs).partitions))
    store = kafkastore.open(f"{url}/{name}")
    assert list(store.partitions) == [name]
    listed = [each.path for each in s3.proxy.requests if each.is_listing]
    assert len(listed) == 1
    assert f"prefix=logs/{name}/" in listed[0]


def test_schemes_are_case_insensitive(s3: S3, golden: Any) -> None:
    case = golden("2.4.0", "codecs", "answers")
    url = s3.put(case.logs, "logs")
    store = kafkastore.open(url.replace("s3:", "S3:"))
    assert [str(each.path) for each in store.log_dirs] == [url]
    assert list(kafkastore.open(f"FILE://{case.logs}").partitions) == list(store.partitions)


def test_local_and_remote_directories_can_be_opened_together(s3: S3, golden: Any) -> None:
    one, other = golden("2.4.0", "transactions", "answers"), golden("2.4.0", "codecs", "answers")
    store = kafkastore.open([s3.put(one.logs, "one"), other.logs])
    assert set(store.partitions) == {
        *kafkastore.open(one.logs).partitions, *kafkastore.open(other.logs).partitions
    }


def test_options_are_passed_to_the_library(
    s3: S3, golden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.put(golden("2.4.0", "codecs", "answers").logs, "logs")
    endpoint, _ = os.environ["AWS_ENDPOINT_URL"], monkeypatch.delenv("AWS_ENDPOINT_URL")
    store = kafkastore.open(url, storage_options={"endpoint_url": endpoint})
    assert sum(len(each) for log in store for each in log.to_arrow())
    for log in store:
        log.refresh()  # with the same options
        assert log.segments


def test_refresh_finds_added_objects(s3: S3, golden: Any) -> None:
    case = golden("2.4.0", "transactions", "answers")
    logs = {str(log.topic_partition): log for log in kafkastore.open(case.logs)}
    name, log = next((name, log) for name, log in logs.items() if len(log.segments) > 1)
    url = s3.put(case.logs, "logs")
    last = log.segments[-1]
    away = s3.root / "away"
    away.mkdir()
    for path in s3.file(f"logs/{name}").glob(f"{last.log_path.stem}.*"):
        path.rename(away / path.name)
    there = kafkastore.open(url)[name]
    assert [each.base_offset for each in there.segments] == [
        each.base_offset for each in log.segments[:-1]
    ]
    for path in away.iterdir():
        path.rename(s3.file(f"logs/{name}/{path.name}"))
    away.rmdir()
    there.refresh()
    assert results_of(there)["records"] == results_of(log)["records"]


def test_a_pickled_path_is_opened_by_a_new_listing(
    s3: S3, golden: Any
) -> None:
    local = kafkastore.open(golden("2.4.0", "transactions", "answers").logs)
    url = s3.put(golden("2.4.0", "transactions", "answers").logs, "logs")
    send = f"import pickle, sys; from kafkastore.paths import to_path; path = to_path({url!r}); "
    sent = subprocess.run(
        [sys.executable, "-c", send + "sys.stdout.buffer.write(pickle.dumps(path))"],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert b"kafkastore-remote-" not in sent
    elsewhere = pickle.loads(sent)
    for log in local:
        there = PartitionLog(
            elsewhere / str(log.topic_partition), log.topic_partition, LogDir(elsewhere)
        )
        assert str(there.path) == f"{url}/{log.topic_partition}"
        assert results_of(there)["records"] == results_of(log)["records"]
        assert there.log_start_offset == log.log_start_offset


def test_an_empty_url_is_not_a_store(s3: S3) -> None:
    with pytest.raises(NotALogDirectoryError, match="/nothing"):
        kafkastore.open(f"s3://{s3.bucket}/nothing/")
    with pytest.raises(NotALogDirectoryError, match="s3://no-such-bucket/logs"):
        kafkastore.open("s3://no-such-bucket/logs")


def test_objects_whose_names_cannot_be_files_are_left_out(s3: S3, golden: Any) -> None:
    case = golden("2.4.0", "codecs", "answers")
    url = s3.put(case.logs, "logs")
    s3.file("logs/codecs-directory").mkdir()
    assert list(kafkastore.open(url).partitions) == list(kafkastore.open(case.logs).partitions)


@pytest.mark.parametrize(
    "name", ["../evil", "../../etc/cron.d/evil", "t-0/../../evil", "./evil", "t-0/./evil", ".."]
)
def test_an_object_s_name_never_leads_out_of_its_directory(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = RemoteStore("memory://bucket/logs")
    info = {"type": "file", "size": 1, "LastModified": datetime.now(UTC)}
    found = {f"{store._root}/{each}": info for each in ("t-0/good", name)}
    monkeypatch.setattr(store, "_find", lambda: found)
    assert store.list().keys() == {"t-0/good"}
    listed = [{**info, "name": each} for each in found]
    listed += [
        {"name": f"{store._root}/{each}", "type": "directory"}
        for each in (".", "..", "t-1", "t-2/")
    ]
    monkeypatch.setattr(store._library, "ls", lambda *_, **__: listed)
    objects, directories = store.list_directory()
    assert (objects.keys(), directories) == ({"t-0/good"}, {"t-1", "t-2"})


def test_temporary_files_are_removed_when_the_process_ends(
    tmp_path: Path, golden: Any, s3: S3
) -> None:
    url = s3.put(golden("2.4.0", "codecs", "answers").logs, "logs")
    reading = f"import kafkastore; print(len(list(kafkastore.open({url!r})))); "
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def run(end: str) -> None:
        subprocess.run([sys.executable, "-c", reading + end], env=environment)

    run("")
    assert list(tmp_path.iterdir()) == []
    run("import os; os.kill(os.getpid(), 9)")
    assert len(list(tmp_path.iterdir())) == 1
    run("")  # the next one removes it
    assert list(tmp_path.iterdir()) == []
