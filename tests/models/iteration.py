"""Iterators that end with an error."""

from kafkastore import KafkaStoreError


def until_error(items, kinds=KafkaStoreError):
    """The items before an error, and the error or None."""
    found = []
    try:
        for item in items:
            found.append(item)
    except kinds as error:
        return found, error
    return found, None
