"""Every table of messages of the package, by a name for tests."""

from kafkastore.formats.records import control_records
from kafkastore.formats.requests import apis
from kafkastore.formats.topics import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)

TABLES = {
    "cluster metadata": cluster_metadata.RECORDS,
    "consumer offsets": consumer_offsets.RECORDS,
    "control records": control_records.KRAFT_VALUES,
    "headers": apis.HEADERS,
    "remote log metadata": remote_log_metadata.RECORDS,
    "requests": apis.REQUESTS,
    "responses": apis.RESPONSES,
    "share group state": share_group_state.RECORDS,
    "transaction state": transaction_state.RECORDS,
}
