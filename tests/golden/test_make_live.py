"""Golden data from real brokers: the same seed gives the same records, a load gives answers."""
import json

import pytest
from golden.make.command_line import main
from models.seed import some

pytestmark = pytest.mark.kafka


def rows(answers, partition):
    return [row[:6] for row in answers["partitions"][partition]["records"]]


def test_the_same_seed_makes_the_same_records(
    golden, golden_directory, require_broker, tmp_path
):
    version, name = "2.4.0", "create-time-monotonic"
    require_broker(version)
    seed = json.loads((golden_directory / "MANIFEST.json").read_text())[version]["seed"]
    options = ["--version", version, "--case", name, "--seed", seed]
    assert main([str(tmp_path), *options]) == 0
    made = json.loads((tmp_path / "data" / version / name / "answers.json").read_text())
    before = golden(version, name, "answers").answers
    for partition in ("mono-0", "mono-1"):
        assert rows(made, partition) == rows(before, partition)
        offsets = made["partitions"][partition]["list_offsets"]
        assert offsets == before["partitions"][partition]["list_offsets"]
    assert list(json.loads((tmp_path / "MANIFEST.json").read_text())) == [version]


@pytest.mark.parametrize("version", ["2.4.0", "4.3.1"])
@pytest.mark.parametrize("recover", some([False, True], 1, "loads"))
def test_a_broker_reports_the_records_of_a_directory_it_did_not_write(
    golden, load_into_broker, version, recover
):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    loaded = load_into_broker([case.logs / "mono-0"], version, recover=recover)
    assert rows(loaded.answers, "mono-0") == rows(case.answers, "mono-0")
    assert loaded.answers["partitions"]["mono-0"]["log_end_offset"] == 110
    logged = "\n".join(loaded.answers["broker_log"])
    assert ("Recovering unflushed segment" in logged) == recover


def test_a_broker_believes_the_log_start_offset_it_is_given(golden, load_into_broker):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    start = {"mono-0": 30}
    loaded = load_into_broker([case.logs / "mono-0"], "2.4.0", log_start_offsets=start)
    answers = loaded.answers["partitions"]["mono-0"]
    assert answers["log_start_offset"] == 30
    assert answers["records"][0][0] == 30
