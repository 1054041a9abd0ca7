"""Output and effect of ``kafkastore convert``."""
from __future__ import annotations

import errno
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented


def files_of(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*") if path.is_file()
    }


def test_without_an_option_nothing_is_changed(run: Run, sample_copy: Path) -> None:
    before = files_of(sample_copy)
    for options in ([], ["--dry-run"], ["--codec", "zstd"]):
        ran = run("convert", sample_copy, *options, "--verbose")
        assert ran.code == 0
        assert ran.out.count("it has messages of format 1") == 10
        assert "\nreplace  5 more .log " in run("convert", sample_copy, *options).out
    assert files_of(sample_copy) == before


def test_a_copy_is_converted_and_the_original_is_not(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    before = files_of(sample_root)
    copy = tmp_path / "copy"
    ran = run("convert", sample_root, "--copy-to", copy)
    assert ran.code == 0
    assert files_of(sample_root) == before
    assert run("cat", copy).out == run("cat", sample_root).out
    assert run("verify", copy, "--fail-on", "slow").code == 0
    assert "nothing to change" in run("convert", copy).out


def test_in_place_needs_confirmation_or_yes_and_can_be_undone(run: Run, sample_copy: Path) -> None:
    before = files_of(sample_copy)
    assert_one_sentence(run("convert", sample_copy, "--in-place"), "--yes")
    assert files_of(sample_copy) == before
    ran = run("convert", sample_copy, "--in-place", "--yes")
    assert ran.code == 0
    area = next(line for line in ran.out.splitlines() if line.startswith("undo area: "))
    assert run("changes", "undo", area.removeprefix("undo area: ")).code == 0
    assert files_of(sample_copy) == before


def test_a_segment_that_cannot_be_converted_is_reported(run: Run, sample_copy: Path) -> None:
    path = next(sample_copy.glob("up-1/*.log"))
    damaged = bytearray(path.read_bytes())
    damaged[30] ^= 1
    path.write_bytes(damaged)
    ran = run("convert", sample_copy)
    assert ran.code == 1
    assert f"up-1/{path.name} is not converted: " in ran.out
    assert run("convert", sample_copy, "--json").lines[-1]["kind"] == "unconverted"


def test_json_has_only_documented_fields(run: Run, sample_copy: Path) -> None:
    path = next(sample_copy.glob("up-1/*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    rows = run("convert", sample_copy, "--in-place", "--yes", "--json").lines
    shared = documented("migrate", "plan") | documented("migrate", "change")
    for kind, fields in (
        ("plan", shared), ("change", shared), ("result", documented("migrate", "result")),
        ("unconverted", {"path", "reason"}),
    ):
        check((row for row in rows if row["kind"] == kind), fields)


def test_wrong_arguments_are_one_sentence(run: Run, sample_root: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("convert", sample_root, "--codec", "brotli"), "brotli")
    assert_one_sentence(run("convert", tmp_path / "nowhere"), "nowhere")
    assert_one_sentence(
        run("convert", sample_root, "--copy-to", tmp_path / "no" / "where"), str(tmp_path / "no")
    )
    assert_one_sentence(
        run("convert", sample_root, "--copy-to", tmp_path / "x", "--in-place"), "--in-place"
    )


@pytest.mark.parametrize("command", ["convert", "migrate"])
def test_yes_without_in_place_is_reported(run: Run, sample_copy: Path, command: str) -> None:
    assert_one_sentence(run(command, sample_copy, "--yes"), "--yes needs --in-place")
    assert run(command, sample_copy, "--dry-run", "--yes").code == 0


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, "full"), 2)]
)
def test_a_copy_that_fails_names_its_path_and_the_same_command_finishes_it(
    run: Run, sample_copy: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    copy = sample_copy.with_name("copy")
    with monkeypatch.context() as patch:
        patch.setattr("kafkastore.changes.copy_store.copy_file", fail)
        ran = run("convert", sample_copy, "--copy-to", copy)
    assert ran.code == code
    assert f"{copy}.kafkastore-copying: the same command continues it" in ran.err
    assert run("convert", sample_copy, "--copy-to", copy).code == 0
    assert copy.is_dir()
    assert not copy.with_name("copy.kafkastore-copying").exists()
