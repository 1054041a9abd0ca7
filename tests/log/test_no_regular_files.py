"""Readers and the writer refuse a path that is not a regular file, at once and by its name."""

import json
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext

import pytest
from models.log_directory import Log, Segment
from models.no_regular_file import KINDS
from models.record_format import Batch, Row

import kafkastore
from kafkastore import UnknownLogStartWarning
from kafkastore.errors import CorruptCheckpointError, NotAFileError

LOG = Log((Segment(0, tuple(Batch((Row(n, n, b"k", b"v"),)) for n in range(9))).indexed(),))
LOG_NAME = f"{0:020}.log"

#: Query of a partition -> the files that it needs.
QUESTIONS = {
    "records": ("list(log.records())", (".log",)),
    "batches": ("list(log.batches(5))", (".log", ".index")),
    "arrow": ("log.to_arrow().read_all()", (".log",)),
    "mapped arrow": ("log.to_arrow(binary_view=True).read_all()", (".log",)),
    "size": ("log.segments[0].size", (".log",)),
    "log end": ("log.log_end_offset", (".log", ".index")),
    "offset": ("log.segments[0].translate_offset(5)", (".log", ".index")),
    "committed": ("list(log.records(isolation='read_committed'))", (".log",)),
    "indexes": ("log.segments[0].offset_index, log.segments[0].time_index",
                (".index", ".timeindex")),
    "recovery": ("kafkastore.recover_log(log, version='2.4')",
                 (".log", ".index", ".timeindex", ".txnindex")),
    "reindex": ("kafkastore.plan_reindex(root).changes", ()),
    "writer": ("kafkastore.LogDirWriter(root).writer('t', 0)",
               (".log", ".index", ".timeindex", ".txnindex")),
}
ANSWER_ALL = """
import json, signal, sys
import kafkastore
for root, question in json.load(sys.stdin):
    signal.alarm(20)
    log = kafkastore.open(root)["t-0"]
    try:
        eval(question)
    except Exception as error:
        is_ours = isinstance(error, kafkastore.KafkaStoreError)
        print(json.dumps(str(error) if is_ours else repr(error)), flush=True)
    else:
        print("null", flush=True)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_no_query_waits_and_each_reports_the_kind_of_file(tmp_path, kind):
    cases, wanted = [], []
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        for name, (question, needed) in QUESTIONS.items():
            root = LOG.write(tmp_path / f"{name}{suffix}")
            path = root / "t-0" / f"{0:020}{suffix}"
            path.unlink(missing_ok=True)
            KINDS[kind](path)
            cases.append((str(root), question))
            wanted.append(f"{path} is {kind} and not a regular file" if suffix in needed else None)
    done = subprocess.run(
        [sys.executable, "-c", ANSWER_ALL], input=json.dumps(cases), capture_output=True, text=True,
        timeout=800, check=False,
    )
    assert done.stdout.count("\n") == len(cases), done.stderr
    answers = map(json.loads, done.stdout.splitlines())
    for question, answer, expected in zip(cases, answers, wanted, strict=True):
        if expected is None:
            assert answer is None or "and not a regular file" in answer, question
        else:
            assert answer is not None, question
            assert expected in answer, question


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
     "replication-offset-checkpoint"],
)
def test_a_checkpoint_that_is_not_a_regular_file_counts_as_corrupt(tmp_path, name, kind):
    root = LOG.write(tmp_path / "logs")
    (root / name).unlink(missing_ok=True)
    KINDS[kind](root / name)
    store = kafkastore.open(root)
    (damaged,) = store.log_dirs[0].corrupt_checkpoints
    assert isinstance(damaged.error, CorruptCheckpointError)
    assert damaged.error.path == root / name
    is_start = name == "log-start-offset-checkpoint"
    with pytest.warns(UnknownLogStartWarning) if is_start else nullcontext():
        assert (store["t-0"].log_start_offset, store["t-0"].log_end_offset) == (0, 9)
    if name == "replication-offset-checkpoint":
        with pytest.raises(CorruptCheckpointError) as caught:
            store["t-0"].explain_bounds("checkpoint")
        assert caught.value.path == root / name


def test_no_writer_starts_again_where_a_link_leads_to_nothing(tmp_path):
    root = LOG.write(tmp_path / "logs")
    path = root / "t-0" / LOG_NAME
    path.unlink()
    path.symlink_to("/nowhere")
    with kafkastore.LogDirWriter(root) as log_dir, pytest.raises(NotAFileError):
        log_dir.writer("t", 0)
    assert os.readlink(path) == "/nowhere"


def test_the_error_can_be_pickled(tmp_path):
    error = NotAFileError(tmp_path / LOG_NAME, "a FIFO")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.kind) == (str(error), error.path, error.kind)
