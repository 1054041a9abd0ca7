"""Keys and values of internal topics, packed as brokers do by the descriptions of their records."""

from kafkastore.formats.messages.record_tables import RecordTable
from kafkastore.formats.topics import consumer_offsets, transaction_state
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey

OFFSET_COMMIT, GROUP_METADATA, TRANSACTION_LOG = 1, 2, 0


def pack_key(table: RecordTable, number: int, /, **fields: object) -> bytes:
    """Pack a key: its number, then its fields."""
    codec = table.codec(number, None)
    assert codec is not None
    return number.to_bytes(2, "big") + codec.pack(fields)


def pack_value(table: RecordTable, number: int, version: int, /, **fields: object) -> bytes:
    """Pack a value: its version, then its fields; those left out have their default."""
    codec = table.known_codec(number, version)
    return version.to_bytes(2, "big") + codec.pack(fields)


def pack_frame(table: RecordTable, number: int, version: int, /, **fields: object) -> bytes:
    """Pack a record without a key; number and version are below 128."""
    return bytes((1, number, version)) + table.known_codec(number, version).pack(fields)


def pack_offset_commit_key(key: OffsetCommitKey) -> bytes:
    """Pack the key of a committed offset."""
    return pack_key(consumer_offsets.RECORDS, OFFSET_COMMIT, **key._asdict())


def pack_offset_commit_value(value: OffsetAndMetadata, version: int) -> bytes:
    """Pack a committed offset; fields that the version does not have are left out."""
    description = consumer_offsets.RECORDS.descriptions[OFFSET_COMMIT]
    fields = {
        field.name: getattr(value, field.name)
        for field in description.fields
        if version in field.versions
    }
    return pack_value(consumer_offsets.RECORDS, OFFSET_COMMIT, version, **fields)


def pack_group_key(group: str) -> bytes:
    """Pack the key of a classic group."""
    return pack_key(consumer_offsets.RECORDS, GROUP_METADATA, group=group)


def pack_group_value(version: int, **fields: object) -> bytes:
    """Pack a classic group."""
    return pack_value(consumer_offsets.RECORDS, GROUP_METADATA, version, **fields)


def pack_transaction_key(transactional_id: str) -> bytes:
    """Pack a key of ``__transaction_state``."""
    return pack_key(
        transaction_state.RECORDS, TRANSACTION_LOG, transactional_id=transactional_id
    )


def pack_transaction_value(version: int, **fields: object) -> bytes:
    """Pack a value of ``__transaction_state``."""
    return pack_value(transaction_state.RECORDS, TRANSACTION_LOG, version, **fields)
