"""The golden data as fixtures: directories and answers of real brokers.

A test that takes ``golden_case`` runs once for every answers file of the manifest, as
``2.4.0/transactions/answers``. The mark ``golden_cases`` narrows that by shell patterns::

    @pytest.mark.golden_cases(names="transactions", versions=["2.4.0", "3.*"])
    def test_aborted_records_are_left_out(golden_case): ...

``golden("2.4.0", "upgrade", "answers")`` fetches one case by name, ``writable_copy(case.logs)``
makes a copy to alter. ``--golden DIR`` runs the same tests on other archives.

``load_into_broker([partition, ...], "3.9.1")`` puts partition directories into a real broker and
returns what that says of them, in the same form; it skips where the broker's jars are not fetched.
"""
from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from golden.make import brokers
from golden.make import load_into_broker as loading
from hypothesis import HealthCheck, settings
from models.watchdog import Watchdog
from spark import class_archive

from kafkastore.samples.unpacking import unpack_archive

if TYPE_CHECKING:
    from models.chromium import Browser

# A short session spends most time in Java's second compiler and in loading classes;
# benchmarks run with both.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, " ".join(class_archive.java_options()))

GOLDEN = Path(__file__).parent / "golden"
#: Marks of tests that `make test` leaves out.
MARKS = {"kafka", "soak", "fuzz", "sanitizer", "server", "image"}
#: Fixtures that start a server whose program has to be fetched first.
SERVERS = {"s3_port", "cloud", "hdfs"}


@dataclass(frozen=True)
class GoldenCase:
    """One directory of a broker, and the broker's answers about it.

    Attributes
    ----------
    version, name, answers_name : str
        Kafka version, case, and stem of the answers file, as in the manifest.
    root : path
        The case's directory, with its other directories (the damaged ``logs`` next to
        ``logs-recovered``). Shared by all tests: never alter it.
    logs : path
        The ``log.dirs`` root that the answers are about.
    """

    version: str
    name: str
    answers_name: str
    root: Path
    logs: Path

    @cached_property
    def answers(self) -> dict[str, Any]:
        """The answers file."""
        loaded: dict[str, Any] = json.loads((self.root / f"{self.answers_name}.json").read_text())
        return loaded


GoldenLookup = Callable[[str, str, str], GoldenCase]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for archives and for running all cases."""
    parser.addoption(
        "--golden",
        metavar="DIR",
        type=lambda directory: Path(directory).absolute(),
        default=GOLDEN,
        help="directory with MANIFEST.json and the archives of golden data",
    )
    parser.addoption(
        "--in-full",
        action="store_true",
        help="try all states, bytes and examples of which a run tries some by its seed",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; draw the seed of all random choices, before the plugins read theirs.

    The environment passes it to `models.seed`, and to processes of tests.

    Workers get the seed of the process that started them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a job that a script left running
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        config.option.randomly_seed = config.workerinput["randomly_seed"]
    elif config.option.randomly_seed == "default":
        config.option.randomly_seed = secrets.randbits(31)
    seed = str(config.option.randomly_seed)
    if not seed.isdecimal():
        raise pytest.UsageError(f"--randomly-seed must be a number, got {seed!r}")
    config.option.hypothesis_seed = os.environ["KAFKASTORE_SEED"] = seed
    if config.option.in_full:
        os.environ["KAFKASTORE_IN_FULL"] = "1"
    from models.seed import examples  # it reads the variable set above

    # Deadlines and slow draws depend on the load of the machine.
    settings.register_profile(
        "kafkastore",
        max_examples=examples(settings().max_examples),
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("kafkastore")
    if not config.option.usepdb:
        config.pluginmanager.register(Watchdog(config, seconds=60), "watchdog")
    config.addinivalue_line(
        "markers",
        "golden_cases(names, versions, answers, at_most): shell patterns, one or several each, that"
        " narrow the cases a test with the argument golden_case runs on, and how many of them a run"
        " chooses",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that read from a server."""
    for item in items:
        if SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("server")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start one process more than there are cores: some wait, for programs and for Java."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return 1 + (len(affinity(0)) if affinity else os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files of tests (`models.work_units`)."""
    from models.work_units import WorkUnits

    return WorkUnits(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Add the command that repeats it to a failed test's report."""
    report = yield
    if report.failed:
        # The last -m counts: `make test` leaves marked tests out.
        marks = sorted(MARKS.intersection(mark.name for mark in item.iter_markers()))
        options = [f"-m {mark}" for mark in marks[:1]]
        if item.config.option.in_full:
            options.append("--in-full")
        seed, test = os.environ["KAFKASTORE_SEED"], shlex.quote(item.nodeid)
        command = f'make test SEED={seed} ARGS="{" ".join([*options, test])}"'
        report.sections.append(("To repeat this failure", command))
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test that takes ``golden_case`` the cases of its mark."""
    if "golden_case" not in metafunc.fixturenames:
        return
    directory = metafunc.config.getoption("--golden")
    marks = list(metafunc.definition.iter_markers("golden_cases"))
    chosen = [
        (version, name, answers)
        for version, described in _manifest(directory).items()
        for name, case in described["cases"].items()
        for answers in case["answers"]
        if all(_fits(version, name, answers, **mark.kwargs) for mark in marks)
    ]
    if not chosen and directory == GOLDEN:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: no golden case fits its marks")
    from models.seed import some  # it reads the variable that pytest_configure sets

    limits = [mark.kwargs["at_most"] for mark in marks if "at_most" in mark.kwargs]
    chosen = some(chosen, min(limits, default=len(chosen)), metafunc.definition.nodeid)
    ids = ["/".join(case) for case in chosen]
    metafunc.parametrize("golden_case", chosen, ids=ids, indirect=True)


@cache
def _manifest(directory: Path) -> dict[str, Any]:
    """Read a manifest once."""
    manifest: dict[str, Any] = json.loads((directory / "MANIFEST.json").read_text())
    return manifest


def _fits(
    version: str,
    name: str,
    answers_name: str,
    names: str | list[str] = "*",
    versions: str | list[str] = "*",
    answers: str | list[str] = "*",
    at_most: int = 0,
) -> bool:
    """Say whether a case fits one mark."""
    choices = ((version, versions), (name, names), (answers_name, answers))
    return all(
        any(fnmatchcase(value, pattern) for pattern in _listed(patterns))
        for value, patterns in choices
    )


def _listed(patterns: str | list[str]) -> list[str]:
    """Return a single pattern as a list."""
    return [patterns] if isinstance(patterns, str) else list(patterns)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Power loss is only simulated (by `changes.power_loss`), which counts the calls.

    Syncing takes most of the time of a test that alters files. Only paths that are neither files
    nor directories are synced.
    """
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            flush(descriptor)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", fsync)
        yield


@pytest.fixture(scope="session")
def golden_directory(pytestconfig: pytest.Config) -> Path:
    """The directory of the archives and their manifest."""
    directory: Path = pytestconfig.getoption("--golden")
    return directory


@pytest.fixture(scope="session")
def golden(golden_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> GoldenLookup:
    """A function of version, case and answers' name; unpacks each version once, on first use."""

    @cache
    def unpack(version: str) -> Path:
        root = tmp_path_factory.mktemp("golden", numbered=True)
        unpack_archive(golden_directory / _manifest(golden_directory)[version]["archive"], root)
        return root

    @cache
    def lookup(version: str, name: str, answers_name: str) -> GoldenCase:
        logs = _manifest(golden_directory)[version]["cases"][name]["answers"][answers_name]
        root = unpack(version) / name
        return GoldenCase(version, name, answers_name, root, root / logs)

    return lookup


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser; the test is skipped without one."""
    from models.chromium import NoChromiumError, browser

    try:
        with browser() as running:
            yield running
    except NoChromiumError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def golden_case(request: pytest.FixtureRequest, golden: GoldenLookup) -> GoldenCase:
    """One case after the other (see the module's text)."""
    return golden(*request.param)


@pytest.fixture
def threads_left() -> Callable[[str], list[threading.Thread]]:
    """A function that lists the test's running threads whose name begins with a prefix.

    Threads of dropped work may end a while after their test.
    """
    before = set(threading.enumerate())

    def left(prefix: str) -> list[threading.Thread]:
        return [
            each
            for each in threading.enumerate()
            if each.name.startswith(prefix) and each not in before
        ]

    return left


@pytest.fixture
def writable_copy(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """A function that copies a directory, mtimes and all, for a test that alters it."""
    copies = tmp_path / "copies"

    def copy(directory: Path) -> Path:
        copies.mkdir(exist_ok=True)
        target = copies / f"{len(list(copies.iterdir()))}" / directory.name
        shutil.copytree(directory, target)
        return target

    yield copy
    shutil.rmtree(copies, ignore_errors=True)


@pytest.fixture(scope="session")
def require_broker() -> Callable[[str], None]:
    """A function that skips the test if a broker of that version cannot be started here."""

    def require(version: str) -> None:
        if shutil.which("java") is None or shutil.which("javac") is None:
            pytest.skip("a broker needs a JDK on the PATH")
        jars = brokers.WORK / "jars" / version
        if not jars.is_dir():
            pytest.skip(f"{jars} is not there; tests/golden/make/brokers.py fetches it")

    return require


@pytest.fixture
def load_into_broker(
    require_broker: Callable[[str], None], tmp_path: Path
) -> Callable[..., GoldenCase]:
    """A function of partition directories and a version (`make.load_into_broker`).

    Its further keywords are the fields of ``LoadOptions``. The case's ``logs`` are what the broker
    left, its ``answers`` what it said.
    """

    def load(partitions: Iterable[Path], version: str, **options: Any) -> GoldenCase:
        require_broker(version)
        root = tmp_path / "loaded" / str(len(list(tmp_path.glob("loaded/*"))))
        loading.load_into_broker(partitions, version, root, loading.LoadOptions(**options))
        return GoldenCase(version, "load", "answers", root, root / "logs")

    return load
