"""The jars of every Kafka broker used here, fetched with Maven on first use.

usage, from tests/golden:  python -m make.brokers [VERSION ...] [--work DIR]
"""
from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

# One directory per user, not per clone: the jars of all versions are some 200 MB.
WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "brokers")

# Its jars run ZooKeeper for every version, and lend Jackson to clients that come without.
REFERENCE = "2.4.0"


class Artifacts(NamedTuple):
    """The artifacts that Maven fetches in addition to the broker's dependencies."""

    scala: str
    more: tuple[str, ...] = ()


_LOG4J = ("org.slf4j:slf4j-log4j12:1.7.30", "log4j:log4j:1.2.17")
_JAXB = ("javax.xml.bind:jaxb-api:2.3.1",)  # left the JDK in 11
_LOG4J2 = tuple(f"org.apache.logging.log4j:log4j-{part}:2.24.3" for part in ("slf4j-impl", "core"))

BROKERS = {
    "0.8.2.2": Artifacts("2.11", _LOG4J),
    "0.9.0.1": Artifacts("2.11"),
    "0.10.0.1": Artifacts("2.11"),
    "0.10.2.2": Artifacts("2.11", _JAXB),
    "0.11.0.3": Artifacts("2.11", _JAXB),
    "2.4.0": Artifacts("2.13", _LOG4J),
    "3.9.1": Artifacts("2.13", ("org.slf4j:slf4j-reload4j:1.7.36",)),
    "4.1.1": Artifacts("2.13", _LOG4J2),
    "4.2.2": Artifacts("2.13", _LOG4J2),
    "4.3.1": Artifacts("2.13", (*_LOG4J2, "org.apache.kafka:kafka-tools:4.3.1")),
}

# Clients and tools for groups of every kind, fetched apart from the broker.
GROUP_TOOLS = ("kafka-streams", "kafka-tools")
GROUPS_SINCE = (4, 1)

# MirrorMaker 2 needs Kafka Connect with its web server.
MIRROR_MAKERS = ("4.3.1",)

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>golden</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
# log4j 1.2 names the first four although it runs without them, and some are not published; the
# tools that are used here need nothing of Kafka Connect.
_UNWANTED = (
    "com.sun.jdmk:jmxtools", "com.sun.jmx:jmxri", "javax.jms:jms", "javax.mail:mail",
    "org.apache.kafka:connect-runtime",
)


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a version."""
    return tuple(int(part) for part in version.split("."))


def _coordinates(name: str) -> str:
    """Write ``group:artifact`` or ``group:artifact:version`` as XML."""
    tags = zip(("groupId", "artifactId", "version"), name.split(":"), strict=False)
    return "".join(f"<{tag}>{value}</{tag}>" for tag, value in tags)


def _artifacts(version: str) -> list[str]:
    """List the artifacts that are named, each ``group:artifact:version``."""
    scala, more = BROKERS[version]
    kafka = (f"kafka_{scala}", "kafka-clients")
    return [f"org.apache.kafka:{artifact}:{version}" for artifact in kafka] + list(more)


def _named_jars(wanted: Iterable[str]) -> list[str]:
    """List the file names of artifacts."""
    return ["-".join(name.split(":")[1:]) + ".jar" for name in wanted]


def _project(wanted: Iterable[str], unwanted: Iterable[str]) -> str:
    """Write a project with dependencies, without some of theirs."""
    excluded = "".join(f"<exclusion>{_coordinates(name)}</exclusion>" for name in unwanted)
    dependencies = (
        f"    <dependency>{_coordinates(name)}<exclusions>{excluded}</exclusions></dependency>"
        for name in wanted
    )
    return _POM.format(dependencies="\n".join(dependencies))


def jars(version: str, work: Path = WORK) -> Path:
    """Return the directory of a broker's jars; fetch them if they are missing.

    Parameters
    ----------
    version : str
        A key of `BROKERS`.
    work : path
        Where jars are kept; several processes may share it.

    Raises
    ------
    subprocess.CalledProcessError
        If Maven cannot fetch them.
    """
    return _fetched(work / "jars" / version, _artifacts(version), _UNWANTED)


def group_jars(version: str, work: Path = WORK) -> Path:
    """Return the directory of the jars of `GROUP_TOOLS`, which need a broker's; fetch them.

    Arguments and errors are as for `jars`.
    """
    wanted = [f"org.apache.kafka:{artifact}:{version}" for artifact in GROUP_TOOLS]
    return _fetched(work / "jars" / f"{version}-groups", wanted, ("*:*",))


def mirror_maker_jars(version: str, work: Path = WORK) -> Path:
    """Return the directory of the jars of MirrorMaker 2; fetch them if they are missing.

    Arguments and errors are as for `jars`.
    """
    artifact = f"org.apache.kafka:connect-mirror:{version}"
    return _fetched(work / "jars" / f"{version}-mirror-maker", [artifact, *_LOG4J2], ())


def _fetched(directory: Path, wanted: Sequence[str], unwanted: Iterable[str]) -> Path:
    """Return a directory of jars; if one is missing, let Maven copy all there."""
    # Where fetched jars lack an artifact, it was added to the list later.
    if all((directory / name).is_file() for name in _named_jars(wanted)):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = directory.parents[1]
    with tempfile.TemporaryDirectory(dir=work, prefix="fetching-") as name:
        fetching = Path(name)
        (fetching / "pom.xml").write_text(_project(wanted, unwanted))
        subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(fetching), "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={fetching / 'jars'}", "-DincludeScope=runtime"),
            ],
            check=True,
        )
        try:
            (fetching / "jars").rename(directory)
        except OSError:  # there are jars already, or another process was faster
            if not directory.is_dir():
                raise
            for jar in (fetching / "jars").iterdir():
                if not (directory / jar.name).exists():
                    jar.replace(directory / jar.name)
            for archive in (work / "classes").glob(f"{directory.name}-*.jsa"):
                archive.unlink(missing_ok=True)  # of other jars: Java would ignore it
    return directory


def storage_test_jar(version: str, work: Path = WORK) -> Path:
    """Return the jar with ``LocalTieredStorage``; fetch it if it is missing.

    Parameters
    ----------
    version : str
        A key of `BROKERS`, 3.6 or later.
    work : path
        Where jars are kept.

    Raises
    ------
    subprocess.CalledProcessError
        If Maven cannot fetch it.
    """
    name = f"kafka-storage-{version}-test.jar"
    directory = work / "jars" / f"{version}-storage-test"
    if not (directory / name).is_file():
        artifact = f"org.apache.kafka:kafka-storage:{version}:jar:test"
        subprocess.run(
            [
                *("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"),
                f"-DoutputDirectory={directory}",
            ],
            check=True,
            cwd=work,
        )
    return directory / name


def class_path(version: str, work: Path = WORK, *more: Path) -> str:
    """Return a broker's class path, with Jackson for the clients' conversation.

    Parameters
    ----------
    version : str
        A key of `BROKERS`.
    work : path
        Where jars are kept.
    *more : path
        Comes before the jars.
    """
    directory = jars(version, work)
    lent: list[Path] = []
    if not list(directory.glob("jackson-databind*")):
        lent = sorted(jars(REFERENCE, work).glob("jackson-*"))
    return ":".join(str(path) for path in (*more, directory / "*", *lent))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="*", help="default: all")
    parser.add_argument("--work", type=Path, default=WORK)
    arguments = parser.parse_args()
    for version in arguments.version or BROKERS:
        directories = [jars(version, arguments.work)]
        if version_key(version) >= GROUPS_SINCE:
            directories.append(group_jars(version, arguments.work))
        if version in MIRROR_MAKERS:
            directories.append(mirror_maker_jars(version, arguments.work))
        for directory in directories:
            print(version, len(list(directory.iterdir())), "jars in", directory, flush=True)


if __name__ == "__main__":
    main()
