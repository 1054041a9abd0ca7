"""Groups that have no connections."""

from __future__ import annotations

import pytest
from use_cases.stores import commit, record, written

import kafkastore
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.groups.coordinator import GroupCoordinator


@pytest.fixture
def grouped_logs(tmp_path):
    """A directory with the topic t and what groups committed."""
    with written(tmp_path / "logs") as partition:
        for number in range(3):
            partition("t", number).add(*[record(each) for each in range(10)])
        partition("__consumer_offsets").add(
            commit("stored", "t", 0, 4), commit("stored", "t", 1, 6),
            commit("stored", "gone", 0, 2),
        )
    return tmp_path / "logs"


@pytest.fixture
def coordinator(grouped_logs):
    """The coordinator of a node that serves the directory."""
    def list_partitions():
        store = kafkastore.open(grouped_logs)
        return store, store.chosen(None)

    return GroupCoordinator(Catalog(list_partitions), Node(1, "localhost", 9092))
