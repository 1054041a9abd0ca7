"""Commands over a directory of which two partitions are damaged: with Spark as without."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Ran, Run
from cli.test_spark_option import spark  # noqa: F401
from models.damaged_store import DAMAGED, SOUND, write_store

pytestmark = pytest.mark.timeout(300)  # Spark


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("damaged") / "logs")


@pytest.fixture
def same(run: Run, spark: Any) -> Callable[..., Ran]:  # noqa: F811
    """A function that runs a command with and without Spark, and returns what came of it."""

    def same(*arguments: object) -> Ran:
        here = run(*arguments)
        assert run(*arguments, "--spark", "local[1]") == here
        return here

    return same


@pytest.mark.parametrize(("command", "code"), [
    (("verify",), 1),
    (("predict",), 1),
    (("migrate", "--dry-run", "--mode", "rebuild"), 0),
    (("reindex", "--dry-run"), 1),
    (("reindex", "--dry-run", "--up-to-damage"), 1),
    (("compare", "--at", "1600000000000"), 1),
    (("compare", "--samples", "4", "--on-corrupt", "skip"), 1),
    (("lag", "--now", "1600000100000"), 1),
    (("lag", "--now", "1600000100000", "--on-corrupt", "skip"), 1),
    (("latency",), 1),
    (("latency", "--on-corrupt", "stop"), 1),
], ids=" ".join)
def test_a_command_gives_the_same_rows_names_and_code(
    same: Callable[..., Ran], root: Path, command: tuple[str, ...], code: int
) -> None:
    ran = same(command[0], root, *command[1:], "--json")
    assert ran.code == code
    if code:
        told = ran.out + ran.err
        assert [name for name in (*DAMAGED, *SOUND) if f"{name}: " in ran.err or name in told]
