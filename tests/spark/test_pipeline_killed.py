"""The pipeline is killed at random (driver, Java, workers) until it completes."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

import pyarrow.dataset
import pytest
from changes.small_store import contents
from models.seed import SEED, some
from spark.test_changing_jobs import processes_of_session

from kafkastore.changes.undo import undo

KILLS = 2
#: Steps reported as done; a run is killed some time after one of them, or before the first.
STEPS = 11


def pipeline(logs, out, *options):
    """Start a run in a new session."""
    command = [sys.executable, "-m", "kafkastore.cli", "pipeline", logs, "--out", out]
    return subprocess.Popen(
        [*map(str, command), "--spark", "local[2]", "--samples", "3", "--json", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )


def kill_after(process, steps, seconds):
    """Kill all processes of a run, some time after a number of its steps."""
    for _ in range(steps):
        process.stdout.readline()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    for pid in [process.pid, *processes_of_session(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def what_came_out(out):
    """The result without clock and seconds, the files of the copy, and the records."""
    result = json.loads((out / "result.json").read_text())
    del result["now"]
    for step in result["steps"]:
        del step["seconds"]
    table = pyarrow.dataset.dataset(out / "records", partitioning="hive").to_table()
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return result, contents(out / "migrated"), table.sort_by(order)


def logs_of(files):
    return {path: state for path, state in files.items() if path.endswith(".log")}


@pytest.mark.soak
@pytest.mark.parametrize("in_place", some([False, True], 1, "kind of pipeline"))
def test_a_run_killed_at_random_and_resumed_has_the_same_result(
    golden, tmp_path, writable_copy, in_place
):
    choose = random.Random(f"{SEED} {in_place}")
    options = ["--in-place", "--yes"] if in_place else []
    logs = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    before, out = contents(logs), tmp_path / "out"
    with pipeline(logs, out, *options) as uninterrupted:
        said = uninterrupted.communicate()
    assert uninterrupted.returncode == 0, said
    expected, planned = what_came_out(out), contents(logs)
    (undo_area,) = [each["undo_area"] for each in expected[0]["stores"]]
    shutil.rmtree(out)
    if in_place:
        undo(undo_area)
        shutil.rmtree(undo_area)
    assert contents(logs) == before
    for done in sorted(choose.sample(range(STEPS), KILLS)):
        kill_after(pipeline(logs, out, *options, "--resume"), done, choose.uniform(0, 2))
        assert logs_of(contents(logs)) == logs_of(before)
        if out.exists():  # it was quicker
            break
    else:
        with pipeline(logs, out, *options, "--resume") as last:
            said = last.communicate()
        assert last.returncode == 0, said
    assert what_came_out(out) == expected
    assert contents(logs) == planned
    assert not [path for path in tmp_path.iterdir() if "kafkastore-running" in path.name]
    if in_place:
        undo(undo_area)
        assert contents(logs) == before
