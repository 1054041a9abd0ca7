from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from kafkastore.cli.output.bytes_text import json_bytes
from kafkastore.cli.output.json_lines import json_line
from kafkastore.shown_text import format_bytes, similar_names


@given(st.binary(max_size=400) | st.text().map(str.encode), st.none() | st.integers(2, 70))
def test_a_line_never_contains_control_characters(data: bytes, limit: int | None) -> None:
    shown = format_bytes(data, limit)
    assert shown.isprintable()
    assert shown
    if limit is not None:
        assert len(shown.partition("… (")[0]) <= limit or not data


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_plain_text_is_shown_unchanged(text: str) -> None:
    assert format_bytes(text.encode()) == text.replace("\\", "\\\\")


def test_long_values_are_shortened_between_characters() -> None:
    assert format_bytes("ж".encode() * 100, 10) == "ж" * 9 + "… (200 bytes)"
    assert format_bytes(b"\x00" * 100, 10) == "0x0000000… (100 bytes)"
    assert format_bytes(b"x" * 10, 10) == "x" * 10


def test_similar_names_ignore_case_and_are_those_that_exist() -> None:
    known = ["orders", "ORDERS", "payments", "Border"]
    assert similar_names("Orders", known, 2) == ["orders", "ORDERS"]
    assert similar_names("Orders", known, 3) == ["orders", "ORDERS", "Border"]
    assert similar_names("BORDER", known) == ["Border"]
    assert similar_names("xyz", known, 3) == []


@given(st.binary() | st.text().map(str.encode) | st.none())
def test_json_keeps_all_bytes(data: bytes | None) -> None:
    parsed = json.loads(json_line(json_bytes("value", data)))
    if "value" in parsed:
        text = parsed["value"]
        assert data == (None if text is None else text.encode())
    else:
        assert data == base64.b64decode(parsed["value_base64"])
    assert len(parsed) == 1


def test_json_encodes_bytes_that_are_not_text() -> None:
    line = json_line({"path": "/d/\udcff"})
    assert json.loads(line) == {"path": "/d/\udcff"}
    assert json_line({"topic": "Zürich"}) == '{"topic": "Zürich"}\n'.encode()
