"""Bytes after a log that ends at offset 30: the next batch, and bytes that begin no batch."""

from models.record_format import Batch, Row


def next_batch(magic=2):
    return Batch((Row(30, 1, b"k", b"v" * 40),), magic=magic).data


def _torn(position, data):
    """The next batch without its last byte, with some other bytes."""
    torn = bytearray(next_batch()[:-1])
    torn[position : position + len(data)] = data
    return bytes(torn)


#: By the kind of error.
GARBAGE = {
    "text": b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a little text": b"GE",
    "the end of a batch": next_batch()[20:],
    "an offset before the end": _torn(0, (29).to_bytes(8, "big")),
    "an offset of another segment": _torn(0, (1 << 40).to_bytes(8, "big")),
    "a negative offset": _torn(0, b"\xff" * 8),
    "a negative length": _torn(8, b"\x80"),
    "a length of zero": _torn(8, bytes(4)),
    "an unknown magic": _torn(16, b"\x03"),
    "a negative magic": _torn(16, b"\xff"),
    "zeros before other bytes": bytes(600) + b"\1",
}
