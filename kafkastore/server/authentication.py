"""SASL: PLAIN and SCRAM with the passwords of a file.

A client names a mechanism (SaslHandshake), then sends what the mechanism says: from version 1 of
the handshake in SaslAuthenticate requests, before as frames without headers.

Source: Kafka 4.3.1 ``SaslServerAuthenticator``; RFC 4616, RFC 5802; SCRAM is done by scramp.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
_FAILED = "Authentication failed: wrong user or password."


class UsersFileError(KafkaStoreError, ValueError):
    """A users file that can't be used.

    Parameters
    ----------
    path : Path
        The file.
    problem : str
        What is wrong, and in which line.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class Users:
    """Names and passwords, with what SCRAM derives from them once."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self._derived: dict[tuple[str, str], Any] = {}

    def replace(self, others: Users) -> None:
        """Take the names and passwords of others; who is authenticated stays so."""
        self._passwords, self._derived = others._passwords, {}

    def is_password(self, name: str, password: str) -> bool:
        """Return whether a user has a password."""
        known = self._passwords.get(name, "")
        return hmac.compare_digest(known.encode(), password.encode()) and name in self._passwords

    def scram_server(self, mechanism: str) -> Any:
        """Return the server's side of an exchange of SCRAM messages."""
        from scramp import ScramMechanism

        scram = ScramMechanism(mechanism)

        def derived(name: str) -> Any:
            key = mechanism, name
            if key not in self._derived:
                self._derived[key] = scram.make_auth_info(self._passwords[name])
            return self._derived[key]

        return scram.make_server(derived)


def read_users(path: Path) -> Users:
    """Read a file with a line ``name:password`` for each user.

    Lines that begin with ``#`` are comments, and a password may have colons.
    Raises `UsersFileError`, also if scramp is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsersFileError(path, f"can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsersFileError(path, f"can't be read: {error}") from error
    if find_spec("scramp") is None:
        raise UsersFileError(path, "SASL needs the extra serve: pip install 'kafkastore[serve]'")
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            raise UsersFileError(path, f"line {number} is not name:password")
        if name in passwords:
            raise UsersFileError(path, f"line {number} has the user {name} a second time")
        passwords[name] = password
    if not passwords:
        raise UsersFileError(path, "there is no user in it")
    return Users(passwords)


class Authentication:
    """The SASL state of one connection, which ends if `has_failed`."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._step: Callable[[bytes], bytes] | None = None
        self.user: str | None = None
        self.is_raw = False
        self._claimed = ""
        self.has_failed = False

    def handshake(self, request: Values, version: int) -> Values:
        """Begin with a mechanism."""
        mechanism = request["mechanism"]
        if mechanism not in MECHANISMS:
            self.has_failed = True
            return {
                "error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": MECHANISMS,
            }
        self.is_raw = version == 0
        if mechanism == PLAIN:
            self._step = self._plain
        else:
            self._step = self._scram(self._users.scram_server(mechanism))
        return {"mechanisms": MECHANISMS}

    def authenticate(self, request: Values, _version: int) -> Values:
        """Take the client's next message."""
        if self._step is None or self.user is not None:
            self.has_failed = True
            return {
                "error_code": ErrorCode.ILLEGAL_SASL_STATE,
                "error_message": "SaslHandshake must come first",
            }
        try:
            return {"auth_bytes": self.next_message(request["auth_bytes"])}
        except AuthenticationError as error:
            self.has_failed = True
            return {
                "error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": str(error),
            }

    def next_message(self, message: bytes) -> bytes:
        """Return the answer to a client's message; raise `AuthenticationError`."""
        assert self._step is not None
        try:
            return self._step(message)
        except AuthenticationError:
            self._step = None
            raise
        except Exception as error:  # scramp raises many for malformed messages
            self._step = None
            raise AuthenticationError(_FAILED) from error

    def _plain(self, message: bytes) -> bytes:
        """Check ``authorization id NUL name NUL password``."""
        authorization, name, password = message.decode().split("\0")
        if authorization not in ("", name) or not self._users.is_password(name, password):
            raise AuthenticationError(_FAILED)
        self.user = name
        return b""

    def _scram(self, server: Any) -> Callable[[bytes], bytes]:
        """Return the first step of SCRAM, which is followed by the last."""
        def last(message: bytes) -> bytes:
            server.set_client_final(message.decode())
            answer: str = server.get_server_final()
            self.user = self._claimed
            return answer.encode()

        def first(message: bytes) -> bytes:
            text = message.decode()
            server.set_client_first(text)
            self._claimed = text.partition("n=")[2].partition(",")[0]
            answer: str = server.get_server_first()
            self._step = last
            return answer.encode()

        return first


class AuthenticationError(Exception):
    """A client that did not say a right password."""
