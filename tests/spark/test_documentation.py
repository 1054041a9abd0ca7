"""Statements on Spark in docs/spark.md, docs/pipeline.md and the README are true."""
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli.examples import blocks_of

import kafkastore
from kafkastore import samples
from kafkastore.spark.source import options
from kafkastore.spark.source.schema import COLUMNS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.soak
@pytest.mark.parametrize("name", ["spark.md", "pipeline.md"])
def test_the_examples_run(spark, golden, tmp_path, capfd, name):
    logs = tmp_path / "kafka-logs"
    shutil.copytree(golden("0.10.0.1", "upgrade", "answers").logs, logs)
    for partition in ("up-0", "up-1"):
        (logs / partition).rename(logs / partition.replace("up", "orders"))
    # A relative path is one in the folder where Spark was started.
    text = (DOCS / name).read_text().replace('"kafka-logs"', repr(str(logs)))
    text = text.replace('"out"', repr(str(tmp_path / "out")))
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, name, "exec"), {"spark": spark})
    assert capfd.readouterr().out


def test_the_statements_in_sql_run(spark, golden, tmp_path):
    logs = tmp_path / "kafka-logs"
    shutil.copytree(golden("0.10.0.1", "upgrade", "answers").logs, logs)
    (logs / "up-0").rename(logs / "orders-0")
    text = (DOCS / "spark.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    found = []
    for statement in filter(str.strip, block.replace("/kafka-logs", str(logs)).split(";")):
        found += spark.sql(statement).collect()
    (orders, *rest) = found
    sizes = [row for row in rest if "sum(size)" in row]
    log = kafkastore.open(logs)["orders-0"]
    newest = [
        (row["key"].decode(), row["value"])
        for row in log.latest().read_all().to_pylist()
        if row["timestamp"] >= datetime(2017, 7, 14, 2, 40, tzinfo=UTC)
    ]
    assert newest
    assert [tuple(row) for row in rest if row not in sizes] == sorted(newest)
    assert tuple(orders[:2]) == (0, 80)
    written = {path.parent.name.rpartition("-")[0]: 0 for path in logs.glob("*/*.log")}
    for path in logs.glob("*/*.log"):
        written[path.parent.name.rpartition("-")[0]] += path.stat().st_size
    assert [tuple(row) for row in sizes] == sorted(written.items())
    for view in ("orders", "segments", "accounts"):
        spark.catalog.dropTempView(view)


def test_the_example_of_the_readme_shows_what_its_comments_say(spark, tmp_path, capfd):
    samples.unpack(tmp_path / "samples")
    (example,) = (
        block.text for block in blocks_of(DOCS.parent / "README.md")
        if block.language == "python" and "spark" in block.text
    )
    # A relative path is one in the folder where Spark was started.
    here = example.replace('"samples/', f'"{tmp_path / "samples"}/')
    exec(compile(here, "README.md", "exec"), {})
    shown = capfd.readouterr().out
    counts = dict(re.findall(r"^\|\s*(\S+)\s*\|\s*(\d+)\|$", shown, re.MULTILINE))
    assert counts == {"up": "140", "up-compressed": "80"}
    assert dict(re.findall(r"^# (\S+) +\| +(\d+)$", example, re.MULTILINE)) == counts


def test_every_option_and_column_is_named():
    text = (DOCS / "spark.md").read_text()
    for name in options.KNOWN[2:]:
        assert f"`{name}`" in text
    for name in COLUMNS.fieldNames():
        assert f"`{name}`" in text
