"""The benchmark of the data source: comparisons and required speeds, without Spark."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def benchmark(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = pytestconfig.rootpath / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    # By its file: the folder of these tests may have been imported as `spark`.
    spec = spec_from_file_location("spark_benchmark", folder / "spark.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module
    for name in ("local_broker", "build_peers", "contestant", "data"):
        sys.modules.pop(name, None)


class Frame:
    """A frame that takes some time, and returns the next of some answers."""

    def __init__(self, seconds: float, *answers: int) -> None:
        self._seconds, self._answers = seconds, list(answers)

    def __call__(self) -> Frame:
        return self

    def selectExpr(self, *columns: str) -> Frame:
        return self

    def collect(self) -> list[list[int]]:
        time.sleep(self._seconds)
        return [[self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]]


def measured(benchmark: ModuleType, sides: dict[str, Any], *bars: Any) -> Any:
    measure = benchmark.Measure("sum", ("count(*)",), sides, bars)
    return measure, benchmark.compare(measure, [os.getpid()], 1, 3)


def test_sides_answer_in_turn_and_the_least_times_are_compared(benchmark: ModuleType) -> None:
    bars = [benchmark.Bar(("kafka",), 3), benchmark.Bar(("ready",), 0.5)]
    sides = {"kafkastore": Frame(0.01, 7), "kafka": Frame(0.1, 7), "ready": Frame(0, 7)}
    measure, found = measured(benchmark, sides, *bars)
    assert [each.who for each in found] == ["kafkastore", "kafka", "ready"]
    assert [each.answer for each in found] == [[7]] * 3
    assert [len(each.wall) for each in found] == [len(each.cpu) for each in found] == [3, 3, 3]
    assert min(found[1].wall) >= 0.1
    first, second, _ = benchmark.lines(measure, found)
    assert first.endswith("3x kafka or 0.5x ready: ok")
    assert float(second.split()[-1].rstrip("x")) > 3


def test_a_promise_in_seconds_is_about_the_difference(benchmark: ModuleType) -> None:
    sides = {"kafkastore": Frame(0.3, 7), benchmark.EMPTY: Frame(0, 0)}
    for seconds, verdict in ((0.2, "BELOW"), (0.5, "ok")):
        bar = benchmark.Bar((benchmark.EMPTY,), seconds=seconds)
        measure, found = measured(benchmark, sides, bar)
        assert next(benchmark.lines(measure, found)).endswith(verdict)


@pytest.mark.parametrize("answers", [(7, 8), (8,)])
def test_a_wrong_answer_has_no_time(benchmark: ModuleType, answers: tuple[int, ...]) -> None:
    with pytest.raises(benchmark.Failed):
        measured(benchmark, {"kafkastore": Frame(0, 7), "kafka": Frame(0, *answers)})


def test_cpu_times_are_those_of_a_process_and_its_children(benchmark: ModuleType) -> None:
    before = benchmark.cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        while benchmark.cpu_seconds(child.pid) < 0.1:
            time.sleep(0.01)
        assert benchmark.cpu_seconds(os.getpid()) - before >= 0.1
        child.kill()
