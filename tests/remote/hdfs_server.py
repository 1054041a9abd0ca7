"""HDFS in its own process: Hadoop's mini cluster; its jar comes from Maven's repository.

usage, from tests/:  python -m remote.hdfs_server

The rest of Hadoop is among Spark's jars, and so is the version.
"""
from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from golden.make.java import jdk_program

_WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "hdfs")
_SOURCE = Path(__file__).with_name("NameNode.java")
_NAME = "hadoop-client-minicluster"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>hdfs</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>{}</artifactId><version>{}</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
"""


def _spark_s_jars() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "jars"


def jar() -> Path:
    """Return the path of the jar, existing or not, of the Hadoop version of Spark's jars."""
    (client,) = _spark_s_jars().glob("hadoop-client-api-*.jar")
    return _WORK / client.name.replace("hadoop-client-api", _NAME)


def fetch() -> Path:
    """Return the jar, and fetch it if it does not exist yet.

    Raises
    ------
    subprocess.CalledProcessError
        If Maven cannot fetch it.
    """
    wanted = jar()
    if wanted.exists():
        return wanted
    _WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_WORK, prefix="fetching-") as folder:
        version = wanted.stem.removeprefix(f"{_NAME}-")
        Path(folder, "pom.xml").write_text(_POM.format(_NAME, version))
        subprocess.run(
            ["mvn", "-q", "-B", "-f", folder, "dependency:copy-dependencies",
             f"-DoutputDirectory={folder}"],
            check=True,
        )
        Path(folder, wanted.name).rename(wanted)
    return wanted


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Serve an empty file system; yield the port of WebHDFS on 127.0.0.1.

    Parameters
    ----------
    folder : path
        For all its files.
    """
    hosts = folder / "hosts"  # Hadoop looks up this machine by its name
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    class_path = f"{jar()}{os.pathsep}{_spark_s_jars() / '*'}"
    command = [
        jdk_program("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djdk.net.hosts.file={hosts}",
        "-cp", class_path, os.fspath(_SOURCE), os.fspath(folder / "hdfs"),
    ]
    with (
        (folder / "hdfs.log").open("w+") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            cwd=folder, start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("http port "):
                    yield int(line.split()[-1])
                    break
            else:
                raise RuntimeError(f"no HDFS: {Path(log.name).read_text()[-3000:]}")
            process.stdin.close()
            process.wait(800)
        finally:
            process.kill()


if __name__ == "__main__":
    print(fetch())
