"""Two servers' answers to one request, compared field by field."""

from __future__ import annotations

from models.protocol_client import batches, committed_batches

from kafkastore.formats.requests.apis import ApiKey

CLOSED = "the connection is closed"
#: What tells the structures of a list apart, where brokers order them by chance.
_NAMES = (
    "name", "topic", "topic_id", "partition_index", "partition", "group_id", "transactional_id",
    "key", "log_dir", "resource_name", "producer_id", "source",
)


def differences(key, ours, theirs):
    """Yield (path of the field, our value, their value)."""
    path = ApiKey(key).name
    if CLOSED in (ours, theirs):
        if ours != theirs:
            yield path, ours, theirs
        return
    if key == ApiKey.FETCH:
        ours, theirs = _by_topic(ours), _by_topic(theirs)
    yield from _compare(_ordered(ours), _ordered(theirs), path)


def _ordered(value):
    """Return a value with lists whose structures have names sorted by them."""
    if isinstance(value, dict):
        return {name: _ordered(each) for name, each in value.items()}
    if not isinstance(value, list | tuple):
        return value
    found = [_ordered(each) for each in value]
    if found and isinstance(found[0], dict):
        found.sort(key=lambda each: repr([each[name] for name in _NAMES if name in each]))
    return found


def _compare(ours, theirs, path):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours.keys() | theirs.keys():
            yield from _compare(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _compare(one, other, f"{path}[]")
    elif ours != theirs:
        yield path, ours, theirs


def _by_topic(answer):
    """Return a response to Fetch with each topic once, and what consumers see of its records.

    Brokers name a topic again after rows with errors, cut the last batch, and list aborted
    transactions that have no batch in a response.
    """
    topics = {}
    for topic in answer["responses"]:
        rows = topics.setdefault((topic["topic"], topic["topic_id"]), [])
        for row in topic["partitions"]:
            found, _ = batches(row["records"] or b"")
            aborted = row["aborted_transactions"]
            visible = found if aborted is None else committed_batches(found, aborted)
            rows.append(row | {
                "records": [each.data for each in found],
                "aborted_transactions": aborted is not None and [
                    each.last_offset for each in visible
                ],
            })
            if not found:
                del rows[-1]["aborted_transactions"]
    return answer | {
        "responses": [
            {"topic": topic, "topic_id": topic_id, "partitions": rows}
            for (topic, topic_id), rows in topics.items()
        ]
    }
