"""Migrations and new indexes by executors: the same files and reports as by threads."""
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from changes.jobs import changed_by_tasks
from changes.small_store import contents
from click.testing import CliRunner
from models.refused import change_refused
from models.seed import SEED, some

import kafkastore
from kafkastore import migration
from kafkastore.changes.areas import find_journals
from kafkastore.changes.plan import InvalidPlanError
from kafkastore.changes.undo_area import temporary_file
from kafkastore.checks.reindex import plan_reindex
from kafkastore.cli.command_list import cli
from kafkastore.errors import NotALogDirectoryError, RefusalReason
from kafkastore.spark.jobs import changing
from kafkastore.spark.runner import spread

# Number of partitions in the store that is migrated while processes are killed; which processes.
PARTITIONS = 60
KILLED = ("all", "driver", "JVM", "workers", "none, but Ctrl-C")


@pytest.fixture
def logs(golden, writable_copy):
    """A directory of 0.10.0.1: no time indexes, records with timestamps and without."""
    return writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)


@pytest.fixture
def twin(logs, tmp_path):
    """A copy of it, changed by threads for comparison."""
    return shutil.copytree(logs, tmp_path / "twin" / logs.name)


@pytest.fixture
def in_process():
    """A replacement that does the work of executors in this process."""

    def run(job, items, *, weigh):
        return map(job, items)

    return run


def rows_of(frame):
    """The rows of a frame by partition directory."""
    return {Path(row["path"]).name: row for row in frame.toArrow().to_pylist()}


def test_a_migration_by_executors_makes_the_files_that_threads_make(spark, logs, twin):
    before = contents(logs)
    rows = rows_of(changing.migrate(spark, logs))
    kafkastore.apply(migration.plan(migration.survey(twin)))
    assert contents(logs) == contents(twin) != before
    (journal,) = find_journals(logs)
    assert journal.phase == "applied"
    for name, row in rows.items():
        made = {path for path in contents(logs).keys() - before.keys() if path.startswith(name)}
        assert row == {
            "store": str(logs), "topic": name.rpartition("-")[0],
            "partition": int(name.rpartition("-")[2]), "path": str(logs / name),
            "files": len(made), "bytes": sum((logs / path).stat().st_size for path in made),
            "undo_area": str(journal.area), "error": None,
        }
    again = rows_of(changing.migrate(spark, [logs]))
    assert {(row["files"], row["error"]) for row in again.values()} == {(0, None)}
    kafkastore.undo(journal)
    assert contents(logs) == before


def test_a_reindex_by_executors_makes_the_files_that_threads_make(spark, logs, twin):
    for root in (logs, twin):
        (root / "up-0" / f"{0:020}.index").unlink()
    before = contents(logs)
    rows = rows_of(changing.reindex(spark, logs, index_interval_bytes=100))
    kafkastore.apply(plan_reindex(twin, index_interval_bytes=100))
    assert contents(logs) == contents(twin) != before
    assert sum(row["files"] for row in rows.values()) > len(rows)
    (journal,) = find_journals(logs)
    kafkastore.undo(journal)
    assert contents(logs) == before


@pytest.mark.parametrize("mode", migration.MODES)
@pytest.mark.parametrize("partitions", [None, ["up-1"]])
def test_a_survey_is_the_one_of_this_process(logs, in_process, mode, partitions):
    mtimes = dict.fromkeys(migration.survey(logs).mtimes, 1_400_000_000_123)
    for given in (None, mtimes):
        here = migration.survey(logs, given, partitions=partitions, index_interval_bytes=100)
        there = migration.survey(
            logs, given, partitions=partitions, index_interval_bytes=100, runner=in_process
        )
        assert there.partitions == here.partitions
        assert there.warnings == here.warnings
        assert migration.plan(there, mode) == migration.plan(here, mode)


def test_a_survey_of_a_lone_partition_names_its_segments(logs, in_process):
    mtimes = {f"{0:020}.log": 1_400_000_000_123}
    here = migration.survey(logs / "up-0", mtimes)
    there = migration.survey(logs / "up-0", mtimes, runner=in_process)
    assert there.partitions == here.partitions
    assert here.partitions[0].segments[0].mtime_is_given
    elsewhere = migration.survey(logs, mtimes, runner=in_process)
    assert not any(each.mtime_is_given for part in elsewhere.partitions for each in part.segments)


@pytest.mark.parametrize("up_to_damage", [False, True])
@pytest.mark.parametrize("rules", ["0.9.0", "2.4"])
def test_a_plan_of_indexes_is_the_one_of_this_process(logs, in_process, rules, up_to_damage):
    broken = sorted((logs / "up-0").glob("*.log"))[1]
    broken.write_bytes(broken.read_bytes()[:-10] + bytes(10))
    there = plan_reindex(logs, rules, up_to_damage=up_to_damage, runner=in_process)
    here = plan_reindex(logs, rules, up_to_damage=up_to_damage)
    assert there == here
    assert there.unindexed == here.unindexed != ()


def test_a_partition_that_fails_is_a_row_and_is_finished_by_resume(spark, logs, twin):
    plan = migration.plan(migration.survey(logs))
    stuck = next(each for each in plan.changes if each.path.startswith("up-0/"))
    in_the_way = temporary_file(logs / stuck.path, plan.id)
    in_the_way.mkdir()
    rows = rows_of(changing.migrate(spark, logs))
    assert str(in_the_way) in rows["up-0"]["error"]
    assert rows["up-0"]["files"] == 0
    assert {row["error"] for name, row in rows.items() if name != "up-0"} == {None}
    in_the_way.rmdir()
    with change_refused("unfinished"):
        changing.migrate(spark, logs)
    resumed = rows_of(changing.migrate(spark, logs, resume=True))
    kafkastore.apply(migration.plan(migration.survey(twin)))
    assert contents(logs) == contents(twin)
    assert sum(row["files"] for row in resumed.values()) == len(plan.changes)
    assert {row["error"] for row in resumed.values()} == {None}


@pytest.mark.parametrize("options", [[], ["--spark", "local[2]"]], ids=["here", "spark"])
def test_the_command_resumes_what_a_job_began(spark, logs, twin, options):
    plan = migration.plan(migration.survey(logs))
    stuck = next(each for each in plan.changes if each.path.startswith("up-0/"))
    in_the_way = temporary_file(logs / stuck.path, plan.id)
    in_the_way.mkdir()
    changing.migrate(spark, logs).count()
    in_the_way.rmdir()
    (journal,) = find_journals(logs)
    assert not journal.is_finished
    line = ["changes", "resume", str(journal.area), *options]
    assert CliRunner().invoke(cli, line, prog_name="kafkastore").exit_code == 0
    kafkastore.apply(migration.plan(migration.survey(twin)))
    assert contents(logs) == contents(twin)


def test_a_plan_after_an_earlier_plan_that_fails_again_says_so(spark, logs):
    plan = migration.plan(migration.survey(logs, partitions=["up-0"]))
    in_the_way = temporary_file(logs / plan.changes[0].path, plan.id)
    in_the_way.mkdir()
    assert str(in_the_way) in rows_of(changing.migrate(spark, logs, partitions=["up-0"]))[
        "up-0"
    ]["error"]
    rows = rows_of(changing.migrate(spark, logs, resume=True))
    assert str(in_the_way) in rows.pop("up-0")["error"]
    assert rows
    (area,) = logs.parent.glob(f"{logs.name}.kafkastore-undo-*")
    for row in rows.values():
        assert row["files"] == 0
        assert str(area) in row["error"]


def test_a_partition_that_cannot_be_read_is_a_row_and_the_others_are_migrated(spark, logs):
    os.mkfifo(logs / "up-1" / f"{0:020}.timeindex")
    rows = rows_of(changing.migrate(spark, logs))
    assert rows["up-1"]["error"] is not None
    assert rows["up-0"]["error"] is None
    assert rows["up-0"]["files"] > 0
    unread = migration.survey(logs).unread
    found = migration.survey(logs, runner=partial(spread, spark)).unread
    assert [named(each) for each in found] == [named(each) for each in unread]


def named(unread):
    """The row of an unread partition, from any process."""
    return unread.topic_partition, unread.path, type(unread.error), unread.error.args


def test_unsafe_changes_are_refused_before_any_change(spark, logs, tmp_path):
    before = contents(logs)
    with pytest.raises(NotALogDirectoryError):
        changing.migrate(spark, [logs, tmp_path / "nowhere"])
    with change_refused("overlap"):
        changing.migrate(spark, [logs, logs / "up-0"])
    with pytest.raises(KeyError):
        changing.reindex(spark, logs, partitions=["up-7"])
    assert contents(logs) == before
    assert find_journals(logs) == ()


COMMANDS = [
    ["migrate", "LOGS"],
    ["migrate", "LOGS", "--in-place", "--yes", "--mode", "kip-33", "--json"],
    ["migrate", "LOGS", "--in-place", "--yes", "--index-interval-bytes", "100"],
    ["migrate", "LOGS", "--topic", "up-1", "--in-place", "--yes", "--undo-dir", "LOGS"],
    ["migrate", "LOGS", "--in-place"],
    ["migrate", "LOGS", "--copy-to", "LOGS-2", "--samples", "0"],
    ["reindex", "LOGS", "--dry-run", "--json"],
    ["reindex", "LOGS", "--in-place", "--yes", "--up-to-damage"],
    ["reindex", "LOGS/up-0", "--in-place", "--yes"],
    ["reindex", "LOGS-none", "--in-place", "--yes"],
]


@pytest.mark.parametrize("arguments", some(COMMANDS, 5, __name__), ids=" ".join)
def test_a_command_prints_the_same_with_spark_and_without(
    spark, golden, writable_copy, tmp_path, arguments
):
    said = []
    for number, options in enumerate(([], ["--spark", "local[2]"])):
        place = tmp_path / "same"
        place.mkdir()
        logs = place / "logs"
        shutil.copytree(golden("0.10.0.1", "upgrade", "answers").logs, logs)
        broken = sorted((logs / "up-0").glob("*.log"))[1]
        broken.write_bytes(broken.read_bytes()[:-10] + bytes(10))
        os.utime(broken, ns=(1_500_000_000_000_000_001,) * 2)
        line = [each.replace("LOGS", str(logs)) for each in arguments]
        result = CliRunner().invoke(cli, [*line, *options], prog_name="kafkastore")
        said.append((result.exit_code, result.stdout, result.stderr, contents(place)))
        place.rename(tmp_path / f"was-{number}")
    (code, out, err, files), there = said
    assert (code, out, err) == there[:3]
    assert "Traceback" not in err
    assert settled(files) == settled(there[3])


def settled(files):
    """Files without parts that differ between runs: times in undo areas, and their journals."""
    return {
        path: data[:1] if "undo-" in path else data
        for path, data in files.items()
        if not path.endswith("journal.jsonl")
    }


def processes_of_session(leader):
    """Every process of a session except its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and int(entry.name) != leader:
                found.append(int(entry.name))
    return found


def program_of(pid):
    """Name what a process runs; nothing if it has ended."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except FileNotFoundError:
        return ""


def kill(process, who):
    """Kill a driver, its JVM, its workers, or all of them at once."""
    if who == "none, but Ctrl-C":
        process.send_signal(signal.SIGINT)
        return
    children = processes_of_session(process.pid)
    names = {pid: program_of(pid) for pid in children}
    doomed = {
        "all": [process.pid, *children],
        "driver": [process.pid],
        "JVM": [pid for pid in children if names[pid] == "java"],
        "workers": [pid for pid in children if names[pid].startswith("python")],
    }[who]
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def many(golden, tmp_path):
    """A store of many partitions."""
    source = golden("0.10.0.1", "upgrade", "answers").logs
    root = tmp_path / "disk" / "kafka-logs"
    shutil.copytree(source, root)
    for number in range(2, PARTITIONS):
        shutil.copytree(source / f"up-{number % 2}", root / f"up-{number}")
    return root


@pytest.mark.soak
@pytest.mark.parametrize("who", KILLED)
def test_a_migration_that_is_killed_is_finished_or_undone(many, tmp_path, who):
    choose = random.Random(f"{SEED} {who}")
    twin = shutil.copytree(many, tmp_path / "twin" / many.name)
    plan = migration.plan(migration.survey(twin))
    kafkastore.apply(plan)
    before, planned = contents(many), contents(twin)
    command = [sys.executable, "-m", "kafkastore.cli"]
    with subprocess.Popen(
        [*command, "migrate", str(many), "--in-place", "--yes", "--spark", "local[2]",
         "--samples", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:
        wanted = choose.randrange(1, len(plan.changes) * 2 // 3)
        while process.poll() is None and changed_by_tasks(many) < wanted:
            time.sleep(0.01)
        kill(process, who)
        said = process.communicate()[0].decode()
    (journal,) = find_journals(many)
    assert not journal.is_finished, said
    if who not in ("all", "driver"):
        assert f"kafkastore changes resume {journal.area} finishes" in said
        assert process.returncode == (130 if "Ctrl-C" in who else 2)
        assert "Traceback" not in said.splitlines()[-1]
    now = contents(many)
    for path in before.keys() | planned.keys():
        assert now.get(path) in (before.get(path), planned.get(path)), path
    run = partial(subprocess.run, capture_output=True, text=True)
    if who != "driver":
        ran = run([*command, "changes", "resume", str(journal.area)])
        assert (ran.returncode, contents(many)) == (0, planned), ran.stderr
    ran = run([*command, "changes", "undo", str(journal.area)])
    assert (ran.returncode, contents(many)) == (0, before), ran.stderr
    for pid in processes_of_session(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_tasks_report_that_they_do_not_see_the_storage(logs, in_process):
    """Act as an executor on another machine whose disk has the same path."""
    plan = migration.plan(migration.survey(logs))
    before = contents(logs)

    def elsewhere(job, items, *, weigh):
        return [job(each._replace(area="/elsewhere") if each.folder else each) for each in items]

    journal = kafkastore.apply(plan, runner=elsewhere)
    assert journal.phase == "applying"
    assert len(journal.failures) == len({Path(each.path).parent for each in plan.changes})
    for each in journal.failures:
        assert each.error.reason is RefusalReason.NOT_A_DIRECTORY
    assert contents(logs) == before


@pytest.mark.parametrize("plan", [migration.survey, plan_reindex])
def test_an_executor_answers_for_its_own_partition_only(logs, plan):
    """Otherwise a plan for one partition would be applied to another."""

    def swapped(work, items, *, weigh):
        answers = [work(item) for item in items]
        return iter([*answers[1:], answers[0]])

    with pytest.raises(InvalidPlanError):
        plan(logs, runner=swapped)
