"""Compare ``kafkastore serve`` with a broker on the same files, and print one table.

usage:  run.py serve [--only MEASURE ...] [--rounds N] [--records N] [--work DIR]

Both run at the same time, and are asked in turn. README.md says what is measured.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from build_peers import make_data
from contestant import Failed
from data import FIRST_PARTITION, WIDE, log_path
from local_broker import Broker, broker_of
from protocol_client import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    METADATA_VERSION,
    Client,
    fetch_fields,
    packed,
    times_fields,
)

from kafkastore.formats.requests.apis import ApiKey

OURS, PEER = "kafkastore", "broker"
DATA_SETS = ("a", "b")
CLIENTS = (1, 4)
IDLE_CONNECTIONS = 1000
#: Requests a round; partitions in each of the larger ones.
TIMES, PARTITIONS = 1000, 50
WIDE_TOPIC, WIDE_PARTITIONS = "wide", 900
MOST_SECONDS = 120
#: Else glibc returns large blocks of a client to the system and takes them again, or not: few bytes
#: of their size decide, and the same client takes twice the time.
ENVIRONMENT = os.environ | {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 28)
}
QUICK = {"p99 us": (1.0, False)}


class Server(NamedTuple):
    """A side: where it is, and its process."""

    who: str
    address: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return its CPU time so far, user and system."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Return its memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


Sample = dict[str, float]
Ask = Callable[[Server], Sample]


class Measure(NamedTuple):
    """What is asked, in rounds, of both sides; `bars` limits a value relative to the broker's.

    A bar is a number and whether the value is to be at least that many times the broker's; else it
    is to be at most that.
    """

    name: str
    ask: Ask
    bars: dict[str, tuple[float, bool]]


def reading(how: str, topic: str, clients: int, records: int, work: Path) -> Ask:
    """Return a measure of some clients that read a topic at the same time, each all of it."""
    script = str(Path(__file__).with_name("protocol_client.py"))

    def command(address: str) -> list[str]:
        count = min(records, log_end(address, topic))    # Kafka's tool waits for records that lack
        if how != "java":
            return [sys.executable, script, how, address, topic, str(count)]
        from build_peers import kafka

        return [
            *kafka(work), "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server", address, "--topic", topic, "--num-records", str(count),
            "--hide-header", "--timeout", "60000",
        ]

    def ask(server: Server) -> Sample:
        cpu, wall = server.cpu_seconds(), time.perf_counter()
        processes = [
            subprocess.Popen(
                command(server.address), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
            )
            for _ in range(clients)
        ]
        answers = [process.communicate()[0] for process in processes]
        wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - cpu
        if any(process.returncode for process in processes):
            raise Failed(f"{how} could not read from {server.who}")
        if how == "java":    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, ...
            fields = [answer.strip().splitlines()[-1].split(", ") for answer in answers]
            size = sum(float(each[2]) for each in fields) * (1 << 20)
            wall = max(float(each[7]) for each in fields) / 1000
        else:
            found = [json.loads(answer) for answer in answers]
            size = sum(each["bytes"] for each in found)
            wall = max(each["seconds"] for each in found)
        return {"MB/s": size / wall / 1e6, "CPU s/GB": cpu / size * 1e9}

    return ask


def log_end(address: str, topic: str) -> int:
    """Return the offset after the last record of a topic's only partition."""
    client = Client(address)
    answer = client.ask(ApiKey.FETCH, FETCH_VERSION, **fetch_fields({(topic, 0): 0}, 1))
    client.close()
    end: int = answer["responses"][0]["partitions"][0]["high_watermark"]
    return end


def lookups(places: list[tuple[str, int, int, int]], partitions: int) -> Ask:
    """Return a measure of times looked up, one request after the other.

    `places` has the first and the last time of partitions; each request asks for `partitions`.
    """
    chosen = random.Random(5)
    requests = [
        packed(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, times_fields(sorted(
            (topic, number, chosen.randint(first, last))
            for topic, number, first, last in chosen.sample(places, partitions)
        )))[1]
        for _ in range(TIMES)
    ]
    return partial(_latencies, requests=requests)


def metadata(server: Server) -> Sample:
    """Ask for the metadata of all topics."""
    fields = {"topics": None, "allow_auto_topic_creation": False}
    request = packed(ApiKey.METADATA, METADATA_VERSION, fields)[1]
    return _latencies(server, requests=[request] * (TIMES // 10))


def _latencies(server: Server, requests: list[bytes]) -> Sample:
    client = Client(server.address)
    took = []
    cpu = server.cpu_seconds()
    for request in requests:
        start = time.perf_counter()
        client.socket.sendall(request)
        client.receive()
        took.append(time.perf_counter() - start)
    cpu = server.cpu_seconds() - cpu
    client.close()
    took.sort()
    return {
        "p50 us": took[len(took) // 2] * 1e6,
        "p99 us": took[len(took) * 99 // 100] * 1e6,
        "CPU us": cpu / len(took) * 1e6,
    }


def idle(server: Server) -> Sample:
    """Open many connections, each of which has asked something."""
    clients = [Client(server.address, 4096) for _ in range(IDLE_CONNECTIONS)]
    for client in clients:
        client.ask(ApiKey.API_VERSIONS, 0)
    found = {"MiB": server.resident_mib()}
    for client in clients:
        client.close()
    return found


def first_record(address: str, topic: str, process: subprocess.Popen[bytes]) -> float:
    """Return when a server has sent a record; it may still be starting."""
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client = Client(address)
            answer = client.ask(
                ApiKey.FETCH, FETCH_VERSION, **fetch_fields({(topic, 0): 0}, 1)
            )
            client.close()
            if answer["responses"][0]["partitions"][0]["records"]:
                return time.perf_counter()
        except ConnectionError:
            pass
        time.sleep(0.002)
    raise Failed(f"no record of {topic} at {address}")


def starts(broker: Broker, topic: str, rounds: int) -> Iterator[tuple[str, Sample]]:
    """Start both in turn, each alone, up to the first record."""
    with broker.running():    # it recovers; from now on it finds what a clean shutdown left
        pass
    for _ in range(rounds):
        started = time.perf_counter()
        with broker.starting() as process:
            yield PEER, {"s": first_record(broker.address, topic, process) - started}
        address = f"127.0.0.1:{_free_port()}"
        started = time.perf_counter()
        with _served(broker.logs, address) as process:
            yield OURS, {"s": first_record(address, topic, process) - started}


@contextmanager
def _served(logs: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(Path(sys.executable).with_name("kafkastore")), "serve", str(logs)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*command, "--listen", address], stdout=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(MOST_SECONDS)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def places_of(partitions: Mapping[str, Path]) -> list[tuple[str, int, int, int]]:
    """Return topic, number, first and last time of partitions."""
    return [
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), *times_of(directory))
        for name, directory in partitions.items()
    ]


def times_of(directory: Path) -> tuple[int, int]:
    """Return the first and the last time in a partition's indexes."""
    first, *_, last = sorted(directory.glob("*.timeindex")) * 2
    entries = [np.fromfile(path, ">i8,>i4")["f0"] for path in (first, last)]
    return int(entries[0][0]), int(entries[1][entries[1] > 0][-1])


def small_measures(
    partitions: Mapping[str, Path], records: int, work: Path
) -> Iterator[Measure]:
    """Yield what is asked of both with the data sets alone."""
    fast = {"MB/s": (1.0, True), "CPU s/GB": (1.0, False)}
    for topic in DATA_SETS:
        for clients in CLIENTS:
            for how in ("drain", "java", "librdkafka"):
                yield Measure(
                    f"{how}-{topic}-{clients}", reading(how, topic, clients, records, work), fast
                )
    yield Measure("times", lookups(places_of(partitions), 1), QUICK)
    yield Measure("idle", idle, {})


def wide_measures(
    partitions: Mapping[str, Path], _records: int, _work: Path
) -> Iterator[Measure]:
    """Yield what is asked of both with many partitions."""
    wide = [each for each in places_of(partitions) if each[0] == WIDE_TOPIC]
    yield Measure("times-wide", lookups(wide, 1), QUICK)
    yield Measure(f"times-wide-{PARTITIONS}", lookups(wide, PARTITIONS), QUICK)
    yield Measure("metadata-wide", metadata, QUICK)


LINE = "{:16} {:10} {:9} {:>26} {:>8}  {}"
HEADING = LINE.format("measure", "value", "", "kafkastore / broker, median", "ratio", "wanted")


def lines(
    name: str, found: Mapping[str, list[Sample]], bars: Mapping[str, tuple[float, bool]]
) -> Iterator[str]:
    """Show the medians of both sides, and the median of the ratios of each round."""
    for value in found[OURS][0]:
        ours, peer = ([sample[value] for sample in found[who]] for who in (OURS, PEER))
        ratio = median(a / b for a, b in zip(ours, peer, strict=True) if b)
        wanted = ""
        if value in bars:
            bar, is_least = bars[value]
            is_met = ratio >= bar if is_least else ratio <= bar
            wanted = f"{'at least' if is_least else 'at most'} {bar:g}: "
            wanted += "ok" if is_met else "MISSED"
        both = f"{median(ours):.3g} / {median(peer):.3g}"
        yield LINE.format(name, value, "", both, f"{ratio:.2f}", wanted).rstrip()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="serve", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="measures; a beginning will do")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before those that count")
    parser.add_argument("--records", type=int, default=1_000_000, help="that each client reads")
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"))
    arguments = parser.parse_args(words)
    # If this process is terminated, it also ends the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)

    def directory(name: str) -> Path:
        return log_path(work / "data", name, partial(make_data, work)).parent.absolute()

    def is_wanted(name: str) -> bool:
        return not arguments.only or name.startswith(tuple(arguments.only))

    sets = {f"{name}-0": directory(name) for name in DATA_SETS}
    wide = {
        f"{WIDE_TOPIC}-{number}": directory(WIDE).with_name(
            f"{FIRST_PARTITION.rpartition('-')[0]}-{number}"
        )
        for number in range(WIDE_PARTITIONS)
    }
    print(HEADING, flush=True)
    with (work / "serve.jsonl").open("w") as out:
        def keep(
            name: str, found: dict[str, list[Sample]], bars: dict[str, tuple[float, bool]]
        ) -> None:
            print(json.dumps({"measure": name, **found}), file=out, flush=True)
            for line in lines(name, found, bars):
                print(line, flush=True)

        for start, partitions, measures in (
            ("start", sets, small_measures), ("start-wide", sets | wide, wide_measures)
        ):
            asked = [
                each for each in measures(partitions, arguments.records, work)
                if is_wanted(each.name)
            ]
            if not asked and not is_wanted(start):
                continue
            with broker_of(partitions, work) as broker:
                if is_wanted(start):
                    found: dict[str, list[Sample]] = {OURS: [], PEER: []}
                    for who, sample in starts(broker, DATA_SETS[0], arguments.rounds):
                        found[who].append(sample)
                    keep(start, found, {"s": (0.1, False)})
                if asked:
                    for measure, found in compare(
                        broker, asked, arguments.warm_up, arguments.rounds
                    ):
                        keep(measure.name, found, measure.bars)
    return 0


def compare(
    broker: Broker, measures: list[Measure], warm_up: int, rounds: int
) -> Iterator[tuple[Measure, dict[str, list[Sample]]]]:
    """Ask both sides in turn while they run, each first in every other round."""
    address = f"127.0.0.1:{_free_port()}"
    with broker.running() as process, _served(broker.logs, address) as served:
        first_record(address, DATA_SETS[0], served)
        first_record(broker.address, DATA_SETS[0], process)
        sides = [Server(OURS, address, served.pid), Server(PEER, broker.address, process.pid)]
        for measure in measures:
            found: dict[str, list[Sample]] = {OURS: [], PEER: []}
            for number in range(warm_up + rounds):
                for server in sides if number % 2 else sides[::-1]:
                    sample = measure.ask(server)
                    if number >= warm_up:
                        found[server.who].append(sample)
            yield measure, found
