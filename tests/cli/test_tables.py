from __future__ import annotations

import sys

import pytest

from kafkastore.cli.output.tables import StreamedTable, format_count, print_table

ROWS = [["orders-0", "7", "the index is missing and so on and so forth, word by word by word"],
        ["[red]b[/]-12", "1234567", ""]]


def test_plain_tables_have_aligned_columns_and_no_markup(
    capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(["partition", "bytes", "why"], ROWS, right="bytes", prose="why")
    assert capsys.readouterr().out.splitlines() == [
        "partition       bytes  why",
        "────────────  ───────  " + "─" * 65,
        "orders-0            7  the index is missing and so on and so forth, word by word by word",
        "[red]b[/]-12  1234567",
    ]


def test_an_empty_table_is_only_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "bc"], [])
    assert capsys.readouterr().out.splitlines() == ["a  bc", "─  ──"]


@pytest.mark.parametrize("width", [20, 60, 200])
def test_on_a_terminal_of_any_width_no_cell_is_truncated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(["partition", "bytes", "why"], ROWS, right="bytes", prose="why")
    out = capsys.readouterr().out
    for cell in ("orders-0", "[red]b[/]-12", "1234567"):
        assert cell in out
    assert " ".join(ROWS[0][2].split()) in " ".join(
        line.replace("\x1b[1m", "").replace("\x1b[0m", "")[23:].strip()
        for line in out.splitlines()
    )


def test_a_streamed_table_has_its_header_once(capsys: pytest.CaptureFixture[str]) -> None:
    table = StreamedTable(base_offset=12, codec=-6, marks=-1)
    table.add(1, "gzip", "")
    table.add(123456789012345, "none", "control")
    assert capsys.readouterr().out.splitlines() == [
        " base offset  codec   marks",
        "           1  gzip",
        "123456789012345  none    control",
    ]


def test_nouns_agree_with_their_numbers() -> None:
    assert format_count(1, "batch", "batches") == "1 batch"
    assert format_count(0, "file") == "0 files"
    assert format_count(1200, "batch", "batches") == "1,200 batches"
