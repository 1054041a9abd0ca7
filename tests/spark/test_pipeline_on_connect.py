"""The pipeline through a Spark Connect server, and its error if that ends."""
import json
import subprocess
import sys

import pytest
from changes.small_store import contents
from spark.test_clusters import connect, folder, shipped

from kafkastore.spark.pipeline.steps import run_pipeline

__all__ = ["connect", "folder", "shipped"]


@pytest.mark.soak
def test_spark_connect_has_the_same_results(spark, connect, golden, writable_copy, tmp_path):
    logs = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    here = run_pipeline(logs, tmp_path / "here", spark=spark)
    command = [sys.executable, "-m", "kafkastore.cli", "pipeline", logs, "--out", "there"]
    ran = subprocess.run(
        [*command, "--spark", connect[0]], cwd=tmp_path, capture_output=True, text=True, timeout=800
    )
    assert ran.returncode == 0, ran.stderr
    there = json.loads((tmp_path / "there" / "result.json").read_text())["stores"]
    assert there[0]["summary"] == json.loads(here.to_json())["stores"][0]["summary"]
    assert contents(tmp_path / "there" / "migrated") == contents(tmp_path / "here" / "migrated")
