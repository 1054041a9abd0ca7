"""Records of ``__cluster_metadata``: the cluster as KRaft's controllers know it.

They are framed records (`record_tables`), also those of snapshots. Those between a
BeginTransactionRecord and an EndTransactionRecord count together, or not at all.

``docs/formats/cluster_metadata.md`` has the meaning of each record.

Source: Kafka 4.3.1 ``common/metadata/*.json``; versions from 3.3 on.
"""

from __future__ import annotations

import re

from kafkastore.formats.messages.record_tables import RecordTable, TopicRecord

METADATA_VERSION = "metadata.version"

SCRAM_SECRETS = ("salt", "stored_key", "server_key")
MASKED = "(masked)"
"""What is shown instead of a secret."""

# Brokers hide values by the definitions of their configuration and of their plugins', which a disk
# does not have. These are all that Kafka 4.3.1 hides, and what plugins call such values.
_SECRET_CONFIG = re.compile(
    r"password|secret|credential|token|jaas|keystore\.(?:key|certificate)|truststore\.certificates"
    r"|(?:master|private|access|api)\.?key",
    re.IGNORECASE,
)

RECORDS = RecordTable("""
RegisterBrokerRecord 0, versions 0-4, flexible 0+
    broker_id int32
    is_migrating_zk_broker bool 2+
    incarnation_id uuid
    broker_epoch int64
    end_points struct[]
        name string
        host string
        port uint16
        security_protocol int16
    features struct[]
        name string
        min_supported_version int16
        max_supported_version int16
    rack string?
    fenced bool = true
    in_controlled_shutdown bool 1+
    log_dirs uuid[] 3+ tag 0
    cordoned_log_dirs uuid[]? 4+ tag 1 = null

UnregisterBrokerRecord 1, version 0, flexible 0+
    broker_id int32
    broker_epoch int64

TopicRecord 2, version 0, flexible 0+
    name string
    topic_id uuid

PartitionRecord 3, versions 0-2, flexible 0+
    partition_id int32 = -1
    topic_id uuid
    replicas int32[]
    isr int32[]
    removing_replicas int32[]
    adding_replicas int32[]
    leader int32 = -1
    leader_recovery_state int8 tag 0
    leader_epoch int32 = -1
    partition_epoch int32 = -1
    directories uuid[] 1+
    eligible_leader_replicas int32[]? 2+ tag 1 = null
    last_known_elr int32[]? 2+ tag 2 = null

ConfigRecord 4, version 0, flexible 0+
    resource_type int8
    resource_name string
    name string
    value string?

PartitionChangeRecord 5, versions 0-2, flexible 0+
    partition_id int32 = -1
    topic_id uuid
    isr int32[]? tag 0 = null
    leader int32 tag 1 = -2
    replicas int32[]? tag 2 = null
    removing_replicas int32[]? tag 3 = null
    adding_replicas int32[]? tag 4 = null
    leader_recovery_state int8 tag 5 = -1
    directories uuid[]? 1+ tag 8 = null
    eligible_leader_replicas int32[]? 2+ tag 6 = null
    last_known_elr int32[]? 2+ tag 7 = null

FenceBrokerRecord 7, version 0, flexible 0+
    id int32
    epoch int64

UnfenceBrokerRecord 8, version 0, flexible 0+
    id int32
    epoch int64

RemoveTopicRecord 9, version 0, flexible 0+
    topic_id uuid

DelegationTokenRecord 10, version 0, flexible 0+
    owner string
    requester string
    renewers string[]
    issue_timestamp int64
    max_timestamp int64
    expiration_timestamp int64
    token_id string

UserScramCredentialRecord 11, version 0, flexible 0+
    name string
    mechanism int8
    salt bytes
    stored_key bytes
    server_key bytes
    iterations int32

FeatureLevelRecord 12, version 0, flexible 0+
    name string
    feature_level int16

ClientQuotaRecord 14, version 0, flexible 0+
    entity struct[]
        entity_type string
        entity_name string?
    key string
    value float64
    remove bool

ProducerIdsRecord 15, version 0, flexible 0+
    broker_id int32
    broker_epoch int64 = -1
    next_producer_id int64

BrokerRegistrationChangeRecord 17, versions 0-3, flexible 0+
    broker_id int32
    broker_epoch int64
    fenced int8 tag 0
    in_controlled_shutdown int8 1+ tag 1
    log_dirs uuid[] 2+ tag 2
    cordoned_log_dirs uuid[]? 3+ tag 3 = null

AccessControlEntryRecord 18, version 0, flexible 0+
    id uuid
    resource_type int8
    resource_name string
    pattern_type int8
    principal string
    host string
    operation int8
    permission_type int8

RemoveAccessControlEntryRecord 19, version 0, flexible 0+
    id uuid

NoOpRecord 20, version 0, flexible 0+

ZkMigrationStateRecord 21, version 0, flexible 0+
    zk_migration_state int8

RemoveUserScramCredentialRecord 22, version 0, flexible 0+
    name string
    mechanism int8

BeginTransactionRecord 23, version 0, flexible 0+
    name string? tag 0 = null

EndTransactionRecord 24, version 0, flexible 0+

AbortTransactionRecord 25, version 0, flexible 0+
    reason string? tag 0 = null

RemoveDelegationTokenRecord 26, version 0, flexible 0+
    token_id string

RegisterControllerRecord 27, version 0, flexible 0+
    controller_id int32
    incarnation_id uuid
    zk_migration_ready bool
    end_points struct[]
        name string
        host string
        port uint16
        security_protocol int16
    features struct[]
        name string
        min_supported_version int16
        max_supported_version int16

ClearElrRecord 28, version 0, flexible 0+
    topic_name string

UnregisterControllerRecord 29, version 0, flexible 0+
    controller_id int32
""")


def is_secret_config(name: str) -> bool:
    """Return whether the value of a configuration must not be shown by default."""
    return _SECRET_CONFIG.search(name) is not None


def secret_fields(record: TopicRecord) -> tuple[str, ...]:
    """Return the fields of a record that must not be shown by default.

    They stand for all bytes of a record whose version is unknown.
    """
    if record.name == "UserScramCredentialRecord":
        return SCRAM_SECRETS
    if record.name != "ConfigRecord":
        return ()
    value = record.value
    is_hidden = value is None or (value["value"] is not None and is_secret_config(value["name"]))
    return ("value",) if is_hidden else ()
