"""The jars of Spark's Kafka source, fetched with Maven on first use."""
from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

VERSION = "4.2.0"
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "connector")

# The connector's own POM requires jars that are not published: each is named here instead.
_WANTED = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>connector</artifactId><version>1</version>
  <dependencies>
{}  </dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """Return the jars; `subprocess.CalledProcessError` if Maven cannot fetch them."""
    directory = JARS / VERSION
    if not directory.is_dir():
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS, prefix="fetching-") as name:
            pom = "".join(_DEPENDENCY.format(*each) for each in _WANTED)
            Path(name, "pom.xml").write_text(_POM.format(pom))
            subprocess.run(
                ["mvn", "-q", "-B", "-f", name, "dependency:copy-dependencies",
                 f"-DoutputDirectory={name}/jars", "-DincludeScope=runtime"],
                check=True,
            )
            try:
                Path(name, "jars").rename(directory)
            except OSError:  # another process was faster
                if not directory.is_dir():
                    raise
    return sorted(directory.glob("*.jar"))
