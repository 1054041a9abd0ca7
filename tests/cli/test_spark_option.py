"""``--spark``: output and exit code of a command are the same as without it."""
from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest
from cli.running import Ran, Run, assert_one_sentence
from models.pyspark_noise import without_noise
from use_cases.stores import T0, commit, record, written

from kafkastore.jobs.verify import VerifyJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = str(T0 + 15)


@pytest.fixture(scope="module")
def broken(
    sample_roots: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return two log directories of a broker with nearly every kind of fault."""
    first, second = (tmp_path_factory.mktemp("broken") / name for name in ("first", "second"))
    copytree(sample_roots["0.10.0.1"], first)
    second.mkdir()
    copytree(first / "up-1", second / "up-1")
    copytree(first / "up-0", second / "moving-3.0f-future")
    log = sorted((first / "up-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-10:] = bytes(10)
    log.write_bytes(data)
    for index in (first / "up-compressed-0").glob("*.index"):
        index.write_bytes(b"\0" * 12)
    (first / "not a partition").mkdir()
    (first / ".kafka_cleanshutdown").unlink()
    (first / "recovery-point-offset-checkpoint").write_text("no checkpoint\n")
    (second / "meta.properties").write_text("version=0\nbroker.id=77\n")
    (first / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return first, second


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two clusters with the same records in other orders; one group can't fail over."""
    folder = tmp_path_factory.mktemp("clusters")
    clock = {"now": T0}
    roots = folder / "1", folder / "2"
    for number, root in enumerate(roots):
        config = {"message_timestamp_type": "LogAppendTime"} if number == 0 else {}
        with written(root, clock=lambda: clock["now"]) as partition:
            for step in (0, 20, 10, 30) if number == 0 else (0, 10, 20, 30):
                for index in range(3):
                    clock["now"] = T0 + step + 15
                    partition("orders", index, **config).add(record(T0 + step, b"m%d" % step))
            if number == 0:
                partition("alone").add(record(T0))
            for group, topic, index, offset in (
                ("billing", "orders", 0, 2), ("billing", "orders", 1, 9),
                ("billing", "alone", 0, 0), ("mail", "orders", 2, 0), ("mail", "gone", 0, 1),
            ):
                partition("__consumer_offsets").add(commit(group, topic, index, offset))
    log = next((roots[0] / "orders-2").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"\0\0\0")
    return roots


@pytest.fixture
def same(run: Run, spark: SparkSession) -> Callable[..., Ran]:
    """Return a function that runs a command with and without Spark, and compares the two."""

    def same(*arguments: object) -> Ran:
        here = run(*arguments)
        there = run(*arguments, "--spark", "local[2]")
        assert there == here
        return here

    return same


@pytest.mark.parametrize("options", [
    (), ("--json",), ("--sample", "1%", "--json"), ("--fail-on", "data-loss-risk"),
])
def test_verify(same: Any, broken: tuple[Path, Path], options: tuple[str, ...]) -> None:
    ran = same("verify", *broken, *options)
    assert ran.code == 1
    for said in ("up-1", "moving", "broker 77", "not read as a partition"):
        assert said in ran.out


@pytest.mark.parametrize("options", [(), ("--segments",), ("--json",), ("--quick", "--json")])
def test_ls(same: Any, broken: tuple[Path, Path], options: tuple[str, ...]) -> None:
    assert same("ls", broken[0], *options).code in (0, 1)


@pytest.mark.parametrize("options", [
    (), ("--rules", "all"), ("--rules", "all", "--json"), ("--explain", "--json"),
])
def test_offsets(same: Any, broken: tuple[Path, Path], options: tuple[str, ...]) -> None:
    times = ("--at", "1500000000000", "--at", "latest", "--at", "max-timestamp")
    assert same("offsets", broken[0], *times, "--on-corrupt", "skip", *options).code == 1


def test_verify_of_some_partitions(same: Any, broken: tuple[Path, Path]) -> None:
    ran = same("verify", broken[0], "--topic", "up", "--partition", "0", "--json")
    assert len(ran.lines) > 1
    other = [line["finding"] for line in ran.lines[:-1] if "/up-0" not in line["file"]]
    assert other == ["corrupt-checkpoint"]


def test_predict(same: Any, broken: tuple[Path, Path]) -> None:
    ran = same("predict", *broken)
    assert ran.code == 1
    assert "stops the start" in ran.out
    ran = same("predict", broken[0], "--kafka-version", "3.9", "--topic", "up", "--json")
    assert any(line["cut"] for line in ran.lines if "cut" in line)


PLANS = {
    "migrate": (),
    "reindex": ("--up-to-damage",),
    "convert": ("--leader-epoch", "0"),
    "repair": ("--on-corrupt", "skip"),
}


@pytest.mark.parametrize("command", PLANS)
@pytest.mark.parametrize("options", [("--dry-run",), ("--dry-run", "--json")], ids=" ".join)
def test_plans(
    same: Any, broken: tuple[Path, Path], command: str, options: tuple[str, ...]
) -> None:
    ran = same(command, broken[0], *PLANS[command], *options)
    assert ran.code in (0, 1)
    assert "up-0/" in ran.out


@pytest.mark.parametrize("command", PLANS)
def test_changes_have_the_same_outcome(
    run: Run, spark: SparkSession, broken: tuple[Path, Path], tmp_path: Path, command: str
) -> None:
    here, there = tmp_path / "here" / "logs", tmp_path / "there" / "logs"
    codes = []
    for root, on_spark in ((here, ()), (there, ("--spark", "local[2]"))):
        copytree(broken[0], root)
        ran = run(command, root, *PLANS[command], "--in-place", "--yes", *on_spark)
        codes.append(ran.code)
    assert codes[0] == codes[1] in (0, 1)
    assert contents(there) == contents(here) != contents(broken[0])


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and modification time of each file of the partitions."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("up-*/*")
    }


@pytest.mark.parametrize("options", [("--at", "1500000000000"), ("--json", "--summary")])
def test_compare(same: Any, sample_root: Path, options: tuple[str, ...]) -> None:
    assert same("compare", sample_root, *options).code == 0


def test_compare_names_a_corrupt_partition_and_continues(
    same: Any, broken: tuple[Path, Path]
) -> None:
    ran = same("compare", broken[0], "--samples", "3")
    assert ran.code == 1
    assert "up-0/" in ran.err
    assert "up-compressed-0" in ran.out


def test_compare_by_given_modification_times(same: Any, sample_root: Path, tmp_path: Path) -> None:
    mtimes = tmp_path / "mtimes.json"
    mtimes.write_text('{"none-0/00000000000000000000.log": 1}')
    assert "has no entry for the" in same("compare", sample_root, "--mtimes", mtimes).err


def test_lag(same: Any, clusters: tuple[Path, Path]) -> None:
    ran = same("lag", clusters[0])
    assert ran.code == 1
    assert "beyond the log end" in ran.out
    assert "orders-2" in ran.err
    ran = same("lag", clusters[1], "--json", "--now", AT, "--group", "billing")
    assert [line["place"] for line in ran.lines] == [
        "no-partition", "in-log", "beyond-log-end",
    ]


def test_latency(same: Any, clusters: tuple[Path, Path]) -> None:
    ran = same("latency", clusters[0], "--json")
    assert ran.code == 1
    assert "orders-2: " in ran.err
    ran = same("latency", clusters[0], "--partition", "0", "--partition", "1")
    assert (ran.code, "15 ms" in ran.out) == (0, True)
    options = "--topic", "orders", "--partition", "0"
    assert same("latency", clusters[0], *options, "--created-in", clusters[1], "--json").code == 0


def test_latency_of_a_partition_in_two_directories(same: Any, broken: tuple[Path, Path]) -> None:
    ran = same("latency", *broken)
    assert ran.code in (1, 2)
    assert "up-1: partition up-1 is in two directories" in ran.err


def test_failover(same: Any, clusters: tuple[Path, Path]) -> None:
    ran = same("failover", *clusters, "--json")
    assert ran.code == 1
    for said in ("cluster 2 has no partition alone-0", "orders-2", "is beyond the log end"):
        assert said in ran.err
    by = "--by", "log-append-time", "--group", "billing"
    ran = same("failover", *clusters, *by, "--latency-from", clusters[0])
    assert ran.code == 1, "a partition that the latency would be of is broken"
    ran = same("failover", *clusters, *by, "--latency-from", clusters[1], "--topic", "orders")
    assert "show no latency of topic orders" in ran.err
    ran = same("failover", *clusters, *by, "--largest-latency", "1s", "--no-check")
    assert "less 1000 ms of latency" in ran.out


def test_retention(same: Any, broken: tuple[Path, Path]) -> None:
    options = "--now", "2017-07-15T00:00:00Z"
    ran = same("retention", broken[0], *options)
    assert (ran.code, "retention.ms" in ran.out) == (1, True)
    assert "up-0" in same("retention", broken[0], *options, "--json").err


@pytest.mark.parametrize("options", [(), ("--interval", "100", "--json")])
def test_sizing(same: Any, broken: tuple[Path, Path], options: tuple[str, ...]) -> None:
    assert same("sizing", broken[0], *options).code == 0


def test_paths_are_shown_as_given(
    same: Any, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sample_root.parent)
    ran = same("verify", sample_root.name)
    assert f"\n      {sample_root.name}/up-0/" in ran.out


def test_wrong_paths_are_reported_before_spark_is_started(run: Run, tmp_path: Path) -> None:
    ran = run("verify", tmp_path / "none", "--spark", "nothing")
    assert_one_sentence(ran, "does not exist")


@pytest.mark.parametrize(
    "command",
    ["verify", "migrate", "reindex", "repair", "convert", "changes resume", "changes undo"],
)
@pytest.mark.parametrize("threads", ["0", "-1", "two", "99999999999999999999"])
def test_threads_must_be_a_positive_integer(
    run: Run, sample_root: Path, command: str, threads: str
) -> None:
    ran = run(*command.split(), sample_root, "--threads", threads)
    said = {"99999999999999999999": "must be at most"}
    assert_one_sentence(ran, "'--threads': ", said.get(threads, "must be an int of at least 1"))


@pytest.mark.parametrize(
    "command", ["verify", "migrate", "reindex", "repair", "convert", "changes resume"]
)
def test_threads_cannot_be_used_with_spark(run: Run, sample_root: Path, command: str) -> None:
    ran = run(*command.split(), sample_root, "--threads", "2", "--spark", "local[2]")
    assert_one_sentence(ran, "--threads and --spark cannot be combined")


@pytest.mark.parametrize(
    "command",
    [
        "ls", "offsets --at 0", "verify", "predict", "compare", "lag", "latency", "failover",
        "retention", "sizing",
    ],
)
def test_without_spark_the_error_says_how_to_install_it(
    run: Run,
    clusters: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "kafkastore.cli.options.on_spark.find_spec",
        lambda name: None if name == "pyspark" else find_spec(name),
    )
    roots = clusters if command == "failover" else clusters[:1]
    ran = run(*command.split(), *roots, "--spark", "local[2]")
    assert_one_sentence(ran, "pyspark is not installed", "-m pip install 'kafkastore[spark]'")


@pytest.mark.parametrize("scheme", ["sc", "spark"])
def test_an_unreachable_master_is_reported_without_starting_spark(
    run: Run, sample_root: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(builder: object) -> None:
        raise AssertionError("Spark itself tries for a minute")

    # Otherwise the session of this process would be used for any spark:// master.
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", start)
    with socket.socket() as silent:  # it does not listen; no other gets its port
        silent.bind(("127.0.0.1", 0))
        master = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        ran = run("verify", sample_root, "--spark", master)
    assert_one_sentence(ran, f"Spark could not be started at '{master}': connection refused")


def test_a_killed_worker_is_one_sentence(
    run: Run, spark: SparkSession, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(VerifyJob):
        def run(self, item: object) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

    Killed.__module__ = "__main__"  # so that it is pickled by value
    monkeypatch.setattr("kafkastore.cli.commands.verify.VerifyJob", Killed)
    ran = run("verify", sample_root, "--spark", "local[2]")
    assert_one_sentence(ran, "Spark failed: a Python worker ended unexpectedly", "run the command")


@contextmanager
def running_command(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run an endless check as a command in its own process and session."""
    with written(folder / "logs") as partition:
        partition("orders").add(record(T0))
    started = folder / "started"
    script = f"""
import sys, time
from pathlib import Path
from kafkastore.jobs import verify
class Slow(verify.VerifyJob):
    def run(self, item):
        Path({str(started)!r}).touch()
        time.sleep(10_000)
verify.VerifyJob = Slow
from kafkastore.cli.__main__ import main
sys.argv[1:] = [{words[0]!r}, {str(folder / "logs")!r}, "--spark", "local[1]", *{words[1:]!r}]
main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=folder, start_new_session=True,
    )
    try:
        until = time.monotonic() + 800
        while not started.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.soak
def test_ctrl_c_ends_the_command_immediately_and_silently(tmp_path: Path) -> None:
    with running_command(tmp_path, "verify") as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, also to Spark's processes
        out, err = process.communicate(timeout=800)
    assert (process.returncode, out) == (130, "")
    assert without_noise(err) == "kafkastore: interrupted\n"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("words", "what_to_do"),
    [
        (["verify"], "run the command again"),
        (["pipeline", "--out", "out"], "the same command with --resume to continue"),
    ],
)
def test_a_killed_java_process_is_one_sentence(
    tmp_path: Path, words: list[str], what_to_do: str
) -> None:
    with running_command(tmp_path, *words) as process:
        (java,) = (
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and is_java_of(entry, process.pid)
        )
        os.kill(java, signal.SIGKILL)
        _, err = process.communicate(timeout=800)
    assert process.returncode == 2
    assert err.startswith("kafkastore: Spark's driver, a Java process, has ended; ")
    assert err.endswith(f"{what_to_do}\n")
    assert err.count("\n") == 1


def is_java_of(entry: Path, session: int) -> bool:
    """Return whether a process is Java and belongs to a session."""
    with suppress(OSError):
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        return int(fields[3]) == session and Path(os.readlink(entry / "exe")).name == "java"
    return False
