"""TLS and SASL, as a client meets them."""
from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from models.protocol_client import ProtocolClient

from kafkastore import samples
from kafkastore.errors import ArgumentValueError
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve
from kafkastore.server.authentication import (
    MECHANISMS,
    Authentication,
    Users,
    UsersFileError,
)

TLS = Path(__file__).with_name("certificate.pem"), Path(__file__).with_name("key.pem")
FIRST = 35


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.unpack(tmp_path_factory.mktemp("samples"))[-1]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("# who may read\nme:secret\n\nyou:with:colon\n")
    return path


def first_offset(address: str, **settings: object) -> int | KafkaError:
    """What a librdkafka consumer reads first, or the first error that ends it."""
    errors: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            errors.append(error)

    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "g", "log_level": 0, "error_cb": note, **settings,
    })
    consumer.assign([TopicPartition("up", 0, FIRST)])
    try:
        while not errors:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                return message.offset()
        return errors[0]
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])
def test_a_client_with_the_password_reads_and_another_does_not(logs, users, mechanism, tls):
    with serve(logs, tls=tls, users=users, listen="localhost:0") as cluster:
        settings = {
            "security.protocol": "SASL_PLAINTEXT" if tls is None else "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "you",
        }
        if tls is not None:
            settings["ssl.ca.location"] = str(tls[0])
        address = cluster.bootstrap_servers
        assert first_offset(address, **settings, **{"sasl.password": "with:colon"}) == FIRST
        refused = first_offset(address, **settings, **{"sasl.password": "secret"})
        assert isinstance(refused, KafkaError)
        assert refused.code() == KafkaError._AUTHENTICATION


def test_a_client_without_sasl_reads_by_tls(logs):
    with serve(logs, tls=TLS, listen="localhost:0") as cluster:
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(TLS[0])}
        assert first_offset(cluster.bootstrap_servers, **settings) == FIRST


@pytest.fixture
def client(logs: Path, users: Path) -> Iterator[ProtocolClient]:
    with (
        serve(logs, users=users) as cluster,
        ProtocolClient(cluster.bootstrap_servers) as connected,
    ):
        yield connected


def test_requests_before_authentication_end_the_connection(client):
    versions = client.ask(ApiKey.API_VERSIONS, 3)
    assert versions["error_code"] == ErrorCode.NONE
    with pytest.raises(ConnectionError):
        client.ask(ApiKey.METADATA, 9, topics=None)


def test_a_message_without_a_handshake_is_refused_and_ends_the_connection(client):
    answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0me\0secret")
    assert answer["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
    assert client.has_ended()


def test_an_unknown_mechanism_is_refused_and_ends_the_connection(client):
    answer = client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer["mechanisms"] == MECHANISMS
    assert client.has_ended()


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0me\0", b"\0me\0Secret", b"\0nobody\0", b"you\0me\0secret", b"\0me\0secret\0",
        b"\xff",
    ],
)
def test_a_wrong_plain_message_is_refused_and_ends_the_connection(client, message):
    client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.has_ended()


@pytest.mark.parametrize("message", [b"", b"n,,", b"n,,n=nobody,r=x", b"\xff", b"y,,n=me,r=x,p=1"])
def test_a_wrong_scram_message_is_refused(client, message):
    client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
    if answer["error_code"] == ErrorCode.NONE:
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"c=biws,r=x,p=eA==")
    assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.has_ended()


@given(
    st.sampled_from(MECHANISMS),
    st.lists(
        st.binary(max_size=60)
        | st.text("nyrcpai=,+/AMEme \0", max_size=40).map(str.encode)
        | st.sampled_from([b"n,,n=me,r=x", b"c=biws,r=x,p=eA==", b"\0me\0"]),
        max_size=4,
    ),
)
def test_no_message_has_another_effect_than_to_be_refused(mechanism, messages):
    sasl = Authentication(Users({"me": "secret"}))
    sasl.handshake({"mechanism": mechanism}, 1)
    for message in messages:
        answer = sasl.authenticate({"auth_bytes": message}, 1)
        assert "auth_bytes" in answer or answer["error_code"] in (
            ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE,
        )
    assert sasl.user is None


def exchange(client: ProtocolClient, message: bytes) -> bytes:
    """Send a frame without a header, and return the next."""
    client.socket.sendall(len(message).to_bytes(4, "big") + message)
    return client.receive()


def test_old_clients_send_messages_without_headers(client):
    client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN")
    assert exchange(client, b"\0me\0secret") == b""
    assert client.ask(ApiKey.METADATA, 9, topics=None)["topics"]


def test_a_wrong_message_without_header_ends_the_connection(client):
    client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN")
    with pytest.raises(ConnectionError):
        exchange(client, b"\0me\0wrong")


def test_a_client_that_does_not_speak_tls_is_cut_off(logs):
    with serve(logs, tls=TLS) as cluster:
        with ProtocolClient(cluster.bootstrap_servers) as plain, pytest.raises(ConnectionError):
            plain.ask(ApiKey.API_VERSIONS, 3)
        host, port = cluster.bootstrap_servers.split(":")
        trusting = ssl.create_default_context(cafile=str(TLS[0]))
        with (
            socket.create_connection((host, int(port))) as connection,
            trusting.wrap_socket(connection, server_hostname="localhost") as encrypted,
        ):
            assert encrypted.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    "text", ["", "# nobody\n", "me\n", "me:\n", ":secret\n", "me:a\nme:b\n", b"\xff:x\n"]
)
def test_a_wrong_users_file_is_refused(logs, tmp_path, text):
    path = tmp_path / "users"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsersFileError), serve(logs, users=path):
        pass
    with pytest.raises(UsersFileError) as raised, serve(logs, users=tmp_path / "missing"):
        pass
    assert str(raised.value).count("missing") == 1


def test_a_wrong_certificate_is_refused(logs, users):
    for tls in ((users, users), (TLS[0], TLS[0]), (Path("missing"), TLS[1])):
        with pytest.raises(ArgumentValueError), serve(logs, tls=tls):
            pass
