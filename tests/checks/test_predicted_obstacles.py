"""Predicted obstacles to a start, compared with real brokers, which stop or ignore them.

One start has all obstacles that a broker ignores, or that cost it a single log directory. Each
obstacle that stops the broker has a start of its own.
"""

import os
import re
import shutil

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java import BrokerFailure
from golden.make.java_client import JavaClients
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row
from models.seed import some

from kafkastore.checks.predict import Outcome
from kafkastore.jobs.predict import predict_start
from kafkastore.versions import rules_of

pytestmark = pytest.mark.kafka

INTERVAL = 200
THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
STRAY = "old-0.8ba1bf4f3a8e4e4e9f7d0c9a7c6c1f11-stray"


def put(log_dir, name):
    """Write three segments of ten records as a partition of a log directory."""
    made = log_dir.with_name(f"{log_dir.name}-{name}")
    segments = [Segment(base, tuple(THIRTY[base : base + 10])) for base in (0, 10, 20)]
    Log(tuple(each.recovered(INTERVAL) for each in segments)).write(made)
    log_dir.mkdir(parents=True, exist_ok=True)
    (made / "t-0").rename(log_dir / name)
    shutil.rmtree(made)
    return log_dir / name


def replace(path, kind):
    """Replace a file by something that is not a file."""
    if path.exists():
        path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/nowhere/at-all")


def mixed(root, version):
    """Make log directories with all obstacles that a broker ignores; return them."""
    odd_indexes = {"link": ".index", "transactions": ".txnindex"}
    if version < "4.1":
        odd_indexes |= {"index": ".index", "time": ".timeindex"}
    dirs = {name: root / name for name in ("logs", "points", "starts", *odd_indexes)}
    for name, suffix in odd_indexes.items():
        path = put(dirs[name], f"{name}-0") / f"{10:020}{suffix}"
        replace(path, "link" if name == "link" else "fifo")
    put(dirs["logs"], "logs-0")
    for kind in ("fifo", "directory", "link"):
        replace(put(dirs["logs"], f"odd-{kind}-0") / f"{10:020}.log", kind)
    replace(put(dirs["logs"], "active-0") / f"{20:020}.log", "fifo")
    put(dirs["logs"], "below-0")
    (dirs["logs"] / "log-start-offset-checkpoint").write_text("0\n1\nbelow 0 100\n")
    torn = put(dirs["logs"], "torn-0") / f"{10:020}.log"
    torn.write_bytes(torn.read_bytes()[:-9])
    (dirs["logs"] / "notes.txt").touch()
    if rules_of(version).stray_directories_are_known:
        (dirs["logs"] / STRAY).mkdir()
    # Without a partition: the broker could not rename one of an unknown topic, and would stop.
    for name in ("points", "starts"):
        dirs[name].mkdir()
    (dirs["points"] / "recovery-point-offset-checkpoint").write_text("0\nmany\n")
    (dirs["starts"] / "log-start-offset-checkpoint").write_text("0\nmany\n")
    return list(dirs.values())


def predicted(dirs, version):
    return list(predict_start(dirs, version, index_interval_bytes=INTERVAL))


def stops(found):
    return [each for each in found if each.outcome is Outcome.STOPS_THE_START]


def log_dir_of(found, dirs):
    (log_dir,) = (path for path in dirs if path in {found.path, *found.path.parents})
    return log_dir


def loaded(text):
    """Return the log end offset of each partition from the broker's log."""
    ends = {}
    for line in text.splitlines():
        if "Completed load of" not in line:
            continue
        name = re.search(r"partition=([\w-]+)|dir=\S*/([\w-]+)(?:\.\w+-stray)?,", line)
        end = re.search(r"log end offset (\d+)|logEndOffset=(\d+)", line)
        if name and end:
            ends[name[1] or name[2]] = int(end[1] or end[2])
    return ends


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_obstacles_stop_a_broker_as_predicted_or_are_ignored(require_broker, tmp_path, version):
    require_broker(version)
    with JavaClients(WORK) as clients:
        context = CaseContext(
            version, "obstacles", tmp_path / "out", Surroundings("obstacles", WORK, clients)
        )
        try:
            check_ignored_obstacles(context, version)
            check_each_stopping_obstacle(context, version)
        finally:
            context.abandon()
            context.remove_run_directory()


def check_ignored_obstacles(context, version):
    cluster = context.new_cluster("cluster", version)
    dirs = mixed(cluster.root, version)
    cluster.properties.more.update(
        {"log.dirs": ",".join(map(str, dirs)), "log.index.interval.bytes": INTERVAL}
    )
    context.cluster = cluster
    found = predicted(dirs, version)
    lost = {log_dir_of(each, dirs) for each in stops(found)}
    assert {path.name for path in lost} == {path.name for path in dirs} - {"logs"}
    context.start()
    context.create_topic("twice", 1, segment_bytes=1048576)
    context.stop(zookeeper=False)
    text = cluster.broker_log
    failed = set()
    for line in text.splitlines():
        if "ERROR" in line or "Stopping serving" in line:
            failed |= {path for path in dirs if re.search(rf"{path}(?![\w-])", line)}
    assert failed == lost
    ends = loaded(text)
    for each in found:
        if each.path.parent != dirs[0] or each.topic_partition is None:
            continue
        if each.recovered is not None:
            assert ends[each.path.name] == each.recovered.log_end_offset, each
        else:
            assert each.outcome is Outcome.LOSES_RECORDS
            assert ends[each.path.name] == (20 if each.path.name == "active-0" else 30)
            assert each.reassigned_from == (20 if each.path.name == "active-0" else None)
    outcomes = {each.path.name: each for each in found}
    assert outcomes["torn-0"].recovered.log_end_offset == ends["torn-0"] == 19
    assert outcomes["below-0"].lost_bytes == 30 * len(THIRTY[0].data)
    assert "Deleting all segments because" in text


def check_each_stopping_obstacle(context, version):
    cluster = context.cluster
    logs, other = cluster.root / "logs", cluster.root / "other"
    for path in logs.iterdir():
        if re.search(r"^(odd-\w+|active|below|torn|logs)-0|stray$", path.name):
            shutil.rmtree(path)
    (logs / "log-start-offset-checkpoint").unlink(missing_ok=True)
    shutil.copytree(logs / "twice-0", other / "twice-0")
    obstacles = {"lost+found": r"Found directory \S+/lost\+found", "epochs": "x y|\"x\""}
    if not rules_of(version).stray_directories_are_known:
        obstacles[STRAY] = rf"Found directory \S+/{STRAY}"
    obstacles["zeros"] = "Found record size 0 smaller than minimum record overhead"
    if version >= "4.1":
        obstacles["index"] = r"OffsetIndex.mmap\(\)\" is null"
    obstacles["twice"] = "Duplicate log directories"
    for name, said in obstacles.items():
        dirs, odd = [logs], logs / name
        match name:
            case "epochs":
                odd = put(logs, "epochs-0")
                (odd / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
            case "index":
                odd = put(logs, "index-0")
                replace(odd / f"{10:020}.index", "fifo")
            case "twice":
                dirs = [logs, other]
            case "zeros":
                odd = put(logs, "zeros-0")
                with (odd / f"{20:020}.log").open("ab") as file:
                    file.write(bytes(18))
                (logs / ".kafka_cleanshutdown").touch()
            case _:
                odd.mkdir()
        cluster.properties.more["log.dirs"] = ",".join(map(str, dirs))
        if len(dirs) > 1:
            own = (logs / "meta.properties").read_text()
            (other / "meta.properties").write_text(
                re.sub(r"directory\.id=\S+", "directory.id=Zm9vYmFyZm9vYmFyZm9vYg", own)
            )
        (found,) = stops(predicted(dirs, version))
        with pytest.raises(BrokerFailure, match="ended"):
            cluster.start()
        log = (cluster.root / f"broker-{cluster.starts}.log").read_text(errors="replace")
        assert re.search(said, log), (name, found)
        if odd.exists():
            shutil.rmtree(odd)
