"""Small golden inputs of every kind, from the archives, to be damaged for parsers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from fuzz.parsers import PARSERS
from fuzz.reading import each_batch, scanned
from models.golden_batches import smallest_batches

from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.requests import apis, list_offsets
from kafkastore.formats.topics import consumer_protocol
from kafkastore.samples.unpacking import unpack_archive

GOLDEN = Path(__file__).parents[1] / "golden"

#: The directory of a version and a case.
CaseDirectory = Callable[[str, str], Path]

#: The first byte of inputs for columns: all of them, as views, with transaction markers, few rows,
#: inner records compressed with gzip and lz4, bounds.
COLUMN_CHOICES = (0b1, 0b11, 0b1001, 0b1010, 0b10001, 0b110001, 0b1000100)
LARGEST = 1500


@contextmanager
def unpacked() -> Iterator[CaseDirectory]:
    """Unpack archives on request, into a temporary directory."""
    manifest = json.loads((GOLDEN / "MANIFEST.json").read_text())
    with tempfile.TemporaryDirectory() as directory:

        @cache
        def unpack(version: str) -> Path:
            root = Path(directory, version)
            unpack_archive(GOLDEN / manifest[version]["archive"], root)
            return root

        yield lambda version, case: unpack(version) / case


def golden_inputs(directory_of: CaseDirectory) -> dict[str, list[bytes]]:
    """Choose small golden inputs, by the kinds that `PARSERS` needs."""
    batches = list(_smallest_batches(directory_of).values())
    log = b"".join(batch for batch in batches if len(batch) < 200)
    inputs = {
        "log": [*batches, log],
        "chosen log": [
            bytes([choice]) + (_records_of(batch) if choice & 0x30 else batch)
            for number, batch in enumerate(batches)
            for choice in COLUMN_CHOICES[number % 2 :: 2]
            if not (choice & 0x30 and _codec(batch)[0] & 7)
        ],
        "headers and log": [b"\0" + scanned(batch)[:1].tobytes() + batch for batch in batches],
        "rows": [b"\2" + bytes(16), b"\3" + bytes(31) + b"\0" * 3 + b"\0\0\0\0\2\0\0\0\3\0\0\0"],
        "codec": [_codec(batch) + _payload(batch) for batch in batches if _codec(batch)[0] & 7],
        "control batch": [batch for batch in batches if batch[16] == 2 and batch[22] & 0x20],
        "transactional log": [_transactional_log(directory_of)],
        "text": list(_texts(directory_of)),
        "names": [_names(directory_of)],
        "record": list(_records(directory_of)),
        "group protocol": list(_group_protocols()),
        "list offsets": list(_list_offsets()),
        "exchanges": list(_exchanges()),
        ".index": _indexes(directory_of, ".index", offset_index),
        ".timeindex": _indexes(directory_of, ".timeindex", time_index),
        ".txnindex": _smallest(_files(directory_of, ".txnindex"), 34),
        ".snapshot": _smallest(_files(directory_of, ".snapshot"), 11),
    }
    for kind, found in inputs.items():
        assert found, f"no golden input {kind}"
    return inputs


def inputs_of(name: str, inputs: dict[str, list[bytes]]) -> list[bytes]:
    """Return the initial inputs of a parser, small ones first."""
    return sorted((data for kind in PARSERS[name].inputs for data in inputs[kind]), key=len)


def _smallest_batches(directory_of: CaseDirectory) -> dict[str, bytes]:
    return smallest_batches(
        lambda version, case, _: SimpleNamespace(logs=directory_of(version, case) / "logs")
    )


def _files(directory_of: CaseDirectory, suffix: str) -> list[bytes]:
    paths = [
        path
        for version in ("0.11.0.3", "2.4.0", "3.9.1")
        for case in ("transactions", "compacted", "create-time-out-of-order")
        for path in directory_of(version, case).glob(f"logs/*/*{suffix}")
    ]
    return [path.read_bytes() for path in sorted(paths)]


def _smallest(files: list[bytes], least: int) -> list[bytes]:
    """The smallest files that are not empty, and one with two entries."""
    files = sorted({data for data in files if len(data) >= least}, key=len)
    return [*files[:2], *[data for data in files if len(data) >= 2 * least][:2]]


def _indexes(directory_of: CaseDirectory, suffix: str, index) -> list[bytes]:
    """Small indexes, and one with the padding of a killed broker."""
    used = [
        data[: index.used_entry_count(data) * index.ENTRY_SIZE]
        for data in _files(directory_of, suffix)
    ]
    found = _smallest(used, index.ENTRY_SIZE)
    return [*found, found[-1] + bytes(3 * index.ENTRY_SIZE)]


def _records_of(batch: bytes) -> bytes:
    """The bytes of a batch's records for `column_parsers.compressed`: magic and count lead them."""
    return bytes([0, batch[60]]) + batch[61:] if batch[16] == 2 else b"\1" + batch


def _codec(batch: bytes) -> bytes:
    return bytes([(batch[22] if batch[16] == 2 else batch[17]) & 7 | batch[16] << 3])


def _payload(batch: bytes) -> bytes:
    if batch[16] == 2:
        return batch[61:]
    key_at = 26 if batch[16] == 1 else 18
    key_size = max(int.from_bytes(batch[key_at : key_at + 4], "big", signed=True), 0)
    return batch[key_at + 8 + key_size :]


def _transactional_log(directory_of: CaseDirectory) -> bytes:
    """The beginning of a log that has both markers."""
    for path in sorted(directory_of("2.4.0", "transactions").glob("logs/txn-0/*.log")):
        batches = [batch for _, batch in each_batch(path.read_bytes())]
        start = next(
            (at for at, batch in enumerate(batches) if batch[22] & 0x30 == 0x10), len(batches)
        )
        found = b"".join(batches[start : start + 6])
        if found:
            return found
    raise LookupError("no transaction")


def _texts(directory_of: CaseDirectory) -> Iterator[bytes]:
    names = ("*checkpoint", "meta.properties", "*/partition.metadata", ".kafka_cleanshutdown",
             "*/leader-epoch-checkpoint", "*/quorum-state")  # fmt: skip
    for version, case in (
        ("2.4.0", "leader-epochs"), ("3.9.1", "transactions"), ("4.1.1", "kraft-metadata"),
    ):  # fmt: skip
        for name in names:
            for path in sorted(directory_of(version, case).glob(f"logs/{name}")):
                data = path.read_bytes()
                if data[:1].isascii() and 0 < len(data) < LARGEST and b"\0" not in data:
                    yield data


def _names(directory_of: CaseDirectory) -> bytes:
    paths = directory_of("3.9.1", "transactions").glob("logs/**/*")
    made = ["t-0.0123456789abcdef-delete", "00000000000000000042.log.deleted"]
    return "\n".join([*made, *sorted({path.name for path in paths})[:8]]).encode()


def _records(directory_of: CaseDirectory) -> Iterator[bytes]:
    """Records of internal topics: the smallest of each type and version.

    The size of its key leads a keyed record.
    """
    found: dict[tuple[str, bytes], bytes] = {}
    for version, case in (("2.4.0", "wide"), ("4.1.1", "wide"), ("3.9.1", "transactions"),
                          ("4.1.1", "transactions"), ("4.1.1", "kraft-metadata")):  # fmt: skip
        for topic in ("__consumer_offsets", "__transaction_state", "__cluster_metadata"):
            for path in sorted(directory_of(version, case).glob(f"logs/{topic}-*/*.log")):
                for position, batch in each_batch(path.read_bytes()):
                    for record in RecordBatch(batch, position).records():
                        key, value = record.key or b"", record.value or b""
                        data = bytes([len(key)]) + key + value if key else value
                        kind = topic, key[:2] + value[: 2 if key else 3]
                        if len(data) < len(found.get(kind, bytes(LARGEST))):
                            found[kind] = data
    yield from found.values()


def _group_protocols() -> Iterator[bytes]:
    """Messages of every version; no golden group has a member, so these are ours."""
    partitions = [{"topic": "t", "partitions": [0, 3]}]
    for number, fields in enumerate((
        {"topics": ["t", "of"], "owned_partitions": partitions, "rack_id": "a"},
        {"assigned_partitions": partitions, "user_data": b"x"},
    )):
        for version in range(4):
            codec = consumer_protocol.MESSAGES.known_codec(number, version)
            yield version.to_bytes(2, "big") + codec.pack(fields)


def _list_offsets() -> Iterator[bytes]:
    """Messages of every version; no file has any, so these are ours."""
    for version in range(list_offsets.NEWEST_VERSION + 1):
        topic = list_offsets.ListOffsetsTopic("t", (list_offsets.ListOffsetsPartition(0, -1),))
        request = list_offsets.pack_request(list_offsets.ListOffsetsRequest((topic,)), version)
        answered = list_offsets.ListOffsetsPartitionResponse(0)
        response = list_offsets.ListOffsetsResponse(
            (list_offsets.ListOffsetsTopicResponse("t", (answered,)),)
        )
        for message in (request, list_offsets.pack_response(response, version)):
            yield bytes([version]) + message


def _exchanges() -> Iterator[bytes]:
    """A request of each kind and version with its response, in their default values."""
    for key, description in apis.REQUESTS.descriptions.items():
        for version in range(description.versions.oldest, description.versions.newest + 1):
            header = apis.RequestHeader(key, version, 7, "me")
            request = apis.pack_request(header, {})[4:]
            response = b"".join(apis.pack_response(header, {}))[4:]
            yield len(request).to_bytes(2, "big") + request + response
