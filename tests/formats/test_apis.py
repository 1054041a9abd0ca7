"""Frames of requests and responses of every API and version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import message_strategies
from models.message_model import known
from models.seed import some

from kafkastore.errors import CorruptionError, UnsupportedFormatError
from kafkastore.formats.requests.apis import (
    REQUESTS,
    RESPONSES,
    ApiKey,
    RequestHeader,
    is_flexible,
    pack_request,
    pack_response,
    parse_request,
    parse_request_header,
    parse_response,
)

EXCHANGES = [
    pytest.param(key, version, id=f"{description.name} {version}")
    for key, description in REQUESTS.descriptions.items()
    for version in range(description.versions.oldest, description.versions.newest + 1)
]


def test_every_request_has_a_response_of_the_same_versions():
    assert REQUESTS.descriptions.keys() == RESPONSES.descriptions.keys() <= set(ApiKey)
    for key, request in REQUESTS.descriptions.items():
        response = RESPONSES.descriptions[key]
        assert (request.name, request.versions) == (response.name, response.versions)
        assert request.flexible == response.flexible


@pytest.mark.parametrize(("key", "version"), some(EXCHANGES, 40, __name__))
@given(data=st.data())
def test_an_exchange_is_read_from_its_frames(key, version, data):
    header = RequestHeader(key, version, data.draw(st.integers(-(2**31), 2**31 - 1)), "me")
    fields = data.draw(message_strategies.values(REQUESTS.descriptions[key], version))
    frame = pack_request(header, fields)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found, position = parse_request_header(frame[4:])
    assert found == header
    assert known(parse_request(found, frame[4:], position)) == fields
    assert known(parse_request(found, frame[4:] + b"more", position)) == fields
    fields = data.draw(message_strategies.values(RESPONSES.descriptions[key], version))
    frame = b"".join(pack_response(header, fields))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert known(parse_response(header, frame[4:])) == fields
    for size in range(0, len(frame) - 4, 7):
        with pytest.raises(CorruptionError):
            parse_response(header, frame[4 : 4 + size])


@pytest.mark.parametrize(("key", "version"), [(-3, 0), (999, 0), (1, 3), (1, 19), (3, -1)])
def test_unknown_requests_and_versions_are_refused(key, version):
    header = RequestHeader(key, version, 7, "me")
    for use in (
        lambda: parse_request(header, bytes(100), 10),
        lambda: parse_response(header, b"\0\0\0\7" + bytes(100)),
        lambda: pack_request(header, {}),
        lambda: pack_response(header, {}),
    ):
        with pytest.raises(UnsupportedFormatError):
            use()
    assert not is_flexible(999, 0)
