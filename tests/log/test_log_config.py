"""A topic's options, by Kafka's names."""

import numpy as np
import pytest
from models import kafka_classes

from kafkastore.errors import InvalidConfigError
from kafkastore.writing.log_config import TOPIC_OPTIONS, LogConfig


def test_defaults_are_kafka_s():
    config = LogConfig.of()
    assert config == LogConfig() == LogConfig.of({})
    assert (config.segment_bytes, config.segment_index_bytes) == (1 << 30, 10485760)
    assert (config.index_interval_bytes, config.max_message_bytes) == (4096, 1048588)
    assert config.segment_ms == config.retention_ms == 604_800_000
    assert config.message_timestamp_before_max_ms == 2**63 - 1
    assert config.message_timestamp_after_max_ms == 3_600_000


def test_texts_are_read_as_a_broker_reads_them():
    config = LogConfig.of(
        {
            "segment.bytes": " 100 ",
            "preallocate": "TRUE",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": " LogAppendTime ",
            "retention.ms": -1,
        }
    )
    assert (config.segment_bytes, config.preallocate, config.retention_ms) == (100, True, -1)
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.message_timestamp_type == "LogAppendTime"


def test_one_limit_of_timestamps_sets_both_unless_they_are_set():
    both = LogConfig.of({"message.timestamp.difference.max.ms": "5"})
    assert both.message_timestamp_before_max_ms == both.message_timestamp_after_max_ms == 5
    one = LogConfig.of(
        {"message.timestamp.difference.max.ms": 5, "message.timestamp.before.max.ms": 7}
    )
    assert one.message_timestamp_before_max_ms == 7
    assert one.message_timestamp_after_max_ms == 5


def test_options_are_returned_unchanged():
    config = LogConfig.of({"segment.ms": 9, "cleanup.policy": "compact", "preallocate": True})
    assert LogConfig.of(config) is config
    assert LogConfig.of(config.to_options()) == config
    assert config.to_options()["segment.index.bytes"] == "10485760"


def test_topic_options_without_an_effect_here_are_ignored():
    assert LogConfig.of({"min.insync.replicas": 2, "flush.ms": 9}) == LogConfig()
    newer = {"max.decompressed.message.bytes": "1000", "remote.copy.lag.ms": "-2"}
    assert LogConfig.of(newer) == LogConfig()


@pytest.mark.kafka
@pytest.mark.parametrize("version", ["3.9.1", "4.2.2", "4.3.1"])
def test_every_topic_option_of_a_broker_is_known(require_broker, version):
    require_broker(version)
    (answer,) = kafka_classes.ask(version, [("topic-options",)])
    options = set(answer.split()) - {"internal.segment.bytes"}  # no option for users
    assert "segment.bytes" in options
    assert options <= TOPIC_OPTIONS


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"segment.size": 1}, "segment.size"),
        ({"segment_bytes": 100}, "segment_bytes"),
        ({"segment.bytes": 13}, "segment.bytes"),
        ({"segment.bytes": 1 << 31}, "segment.bytes"),
        ({"segment.bytes": "many"}, "segment.bytes"),
        ({"segment.bytes": 1.5}, "segment.bytes"),
        ({"segment.bytes": True}, "segment.bytes"),
        ({"segment.ms": 0}, "segment.ms"),
        ({"retention.ms": -2}, "retention.ms"),
        ({"preallocate": "yes"}, "preallocate"),
        ({"cleanup.policy": "shrink"}, "cleanup.policy"),
        ({"cleanup.policy": 5}, "cleanup.policy"),
        ({"message.timestamp.type": "Create"}, "message.timestamp.type"),
        ({"compression.type": "zip"}, "compression.type"),
        ({"segment.bytes": "1_000"}, "segment.bytes"),
        ({"segment.bytes": None}, "segment.bytes"),
        ({"message.timestamp.type": []}, "message.timestamp.type"),
        ({5: 1}, "5"),
        ({"a": 1, None: 2}, "None"),
        (5, "options"),
        ([("segment.bytes", 1)], "options"),
        ("segment.bytes=100", "options"),
    ],
)
def test_an_option_that_kafka_rejects_is_one_clear_error(options, option):
    with pytest.raises(InvalidConfigError) as refused:
        LogConfig.of(options)
    assert refused.value.option == option


@pytest.mark.parametrize(
    "values",
    [
        {"segment_bytes": "100"},
        {"segment_bytes": 100.0},
        {"segment_bytes": True},
        {"preallocate": "false"},
        {"message_timestamp_type": ["CreateTime"]},
        {"cleanup_policy": "delete"},
        {"cleanup_policy": {"delete"}},
        {"cleanup_policy": frozenset({1})},
    ],
)
def test_values_of_a_wrong_type_are_refused_by_the_option_s_name(values):
    (name,) = values
    with pytest.raises(InvalidConfigError) as refused:
        LogConfig(**values)
    assert refused.value.option == name.replace("_", ".")


def test_integers_of_numpy_are_numbers_like_any():
    config = LogConfig.of({"segment.bytes": np.int64(100)})
    assert config == LogConfig(segment_bytes=np.int32(100)) == LogConfig(segment_bytes=100)
    assert type(config.segment_bytes) is int
