from __future__ import annotations

import shlex
from pathlib import Path

from cli.running import Run, assert_one_sentence


def test_samples_are_unpacked_and_every_suggested_command_works(
    run: Run, tmp_path: Path
) -> None:
    directory = tmp_path / "a folder"
    ran = run("sample", directory)
    assert ran.code == 0
    assert sorted(path.name for path in directory.iterdir()) == ["0.10.0.1", "0.8.2.2", "0.9.0.1"]
    suggested = [line.strip() for line in ran.out.splitlines() if line.startswith("  kafkastore")]
    *suggested, pipeline = suggested
    assert len(suggested) == 5
    assert pipeline.split()[-3:] == ["folder'/*", "--out", "kafkastore-out"]
    for line in suggested:
        name, *arguments = shlex.split(line)
        assert name == "kafkastore"
        assert run(*arguments).code == (1 if arguments[0] == "verify" else 0), line


def test_json_names_the_unpacked_directories(run: Run, tmp_path: Path) -> None:
    rows = run("sample", tmp_path / "samples", "--json").lines
    assert [row["kafka"] for row in rows] == ["0.8.2.2", "0.9.0.1", "0.10.0.1"]
    assert all(Path(row["path"]).is_dir() for row in rows)


def test_a_directory_that_is_not_empty_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert_one_sentence(run("sample", tmp_path), "empty directory", "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
