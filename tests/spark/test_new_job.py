"""The example job of CONTRIBUTING.md runs as documented."""
import re
from pathlib import Path
from shutil import copytree

import kafkastore

DOCUMENT = Path(__file__).parents[2] / "CONTRIBUTING.md"
#: The files that the guide names.
PLACE = "samples/0.10.0.1"


def test_the_job_of_the_contributing_guide_runs_in_threads_and_on_spark(
    spark, golden, tmp_path, monkeypatch, capfd
):
    logs = copytree(golden("2.4.0", "headers-and-nulls", "answers").logs, tmp_path / PLACE)
    monkeypatch.chdir(tmp_path)
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## Adding a job\n")[1].split("\n## ")[0]
    # As in a script: Spark's workers get its classes by value.
    known = {"spark": spark, "__name__": "__main__"}
    for example in re.findall(r"```python\n(.*?)```", chapter, re.DOTALL):
        exec(compile(example, DOCUMENT.name, "exec"), known)
    store = kafkastore.open(logs)
    expected = {
        str(log.path): sum(record.value is None for record in log.records()) for log in store
    }
    assert sum(expected.values()) > 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[: len(expected)] == [
        f"{PLACE}/{Path(path).name} {{'tombstones': {count}}}"
        for path, count in expected.items()
    ]
    assert "tombstones|" in lines[len(expected) + 1]
    frame = known["table"](spark, known["job"], known["items"])
    assert {row.path: row.tombstones for row in frame.collect()} == {
        f"{PLACE}/{Path(path).name}": count for path, count in expected.items()
    }
