"""Text as Java reads it, against character by character models."""

import doctest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import java_text_model as model
from models.seed import examples

from kafkastore.formats.primitives import java_text

NUMBERS = st.one_of(
    st.text("+-0123456789", max_size=12),
    st.text("+-019_ \t\u0663\u0669\U0001d7ce\uff11x", max_size=6),
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63)]).map(
        str
    ),
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("\u0663", 3),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_a_number_java_accepts_is_read(text, number):
    assert java_text.parse_int32(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "--1",
        "+-1",
        " 1",
        "1 ",
        "1_0",
        "1.0",
        "0x1",
        "2147483648",
        "-2147483649",
        "\U0001d7ce",
        "1\n",
        "\u00b2",
    ],
)
def test_a_number_java_refuses_is_refused(text):
    with pytest.raises(java_text.JavaTextError):
        java_text.parse_int32(text)


@given(NUMBERS)
def test_numbers_are_those_of_the_model(text):
    for parse, bits in ((java_text.parse_int32, 32), (java_text.parse_int64, 64)):
        try:
            number = parse(text)
        except ValueError:
            number = None
        assert number == model.parse_number(text, bits)


@given(st.text(" \t\n\x0b\f\rab\xa0\u2003", max_size=12))
def test_blanks_split_as_in_the_model(line):
    assert java_text.split_at_blanks(line) == model.split_at_blanks(line)


@given(st.text("ab\r\n\x0b\u2028", max_size=20))
def test_lines_and_their_positions_are_those_of_the_model(text):
    data = text.encode()
    lines = list(java_text.lines_with_positions(data))
    assert [line.decode() for _, line in lines] == model.read_lines(text)
    assert all(data[position:].startswith(line) for position, line in lines)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b\nc d\ne\n", {"a": "b", "c": "d", "e": ""}),
        ("  a = b  \n", {"a": "b  "}),
        ("a==b\nc : =d\n", {"a": "=b", "c": "=d"}),
        ("#a=b\n ! c=d\n\n  \n", {}),
        ("a=b\\\n   c\\\r\n\td", {"a": "bcd"}),
        ("a\\=b\\:c=d", {"a=b:c": "d"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u0041\\u00e9", {"a": "A\u00e9"}),
        ("a=1\na=2", {"a": "2"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
    ],
)
def test_properties_are_read_as_java_does(text, properties):
    assert java_text.parse_properties(text.encode("latin-1")) == properties


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u004", "a=\\u00g1", "\\uzzzz=1"])
def test_a_unicode_escape_without_four_digits_is_refused_with_its_line(text):
    with pytest.raises(java_text.JavaTextError) as refused:
        java_text.parse_properties(b"x=y\n" + text.encode())
    assert refused.value.args[1] == 4


@settings(max_examples=examples(500))
@given(st.text("ab=: \t\f\\#!\n\ru0041\xe9", max_size=25))
def test_properties_are_those_of_the_model(text):
    try:
        properties = java_text.parse_properties(text.encode("latin-1"))
    except ValueError:
        properties = None
    assert properties == model.load_properties(text)


def test_the_examples_of_the_module_are_true():
    failed, run = doctest.testmod(java_text)
    assert run > 0
    assert failed == 0
