"""Iterators that end with an error."""

from kafkastore import KafkaStoreError


def until_error(items, kinds=KafkaStoreError):
    """What comes before an error, and the error; None where there is none."""
    found = []
    try:
        for item in items:
            found.append(item)
    except kinds as error:
        return found, error
    return found, None
