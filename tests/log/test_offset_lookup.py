"""Lookups by time on logs by chance, against the slow models."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.offset_lookup import broker_answer, correct_answer, kip_33_answer
from models.record_format import Batch, Row, emptied, marker
from models.record_strategies import INDEX_STATES, bounded, logs

import kafkastore

VERSIONS = {"0.10.2": (0, 10, 2), "2.4": (2, 4), "3.9.1": (3, 9, 1)}


def boundaries(log):
    """Every time at which an answer may change, and its neighbours."""
    times = {record[1] for record in log.records(include_control=True)}
    times |= {batch.max_timestamp for batch in log.batches}
    times |= {segment.modified_ms for segment in log.segments} | {0, -1, -7, 2**63 - 1, -(2**63)}
    near = {time + by for time in times for by in (-1, 0, 1)}
    return sorted(time for time in near if -(2**63) <= time < 2**63)


def answers(log, targets, rules):
    """{target: answer} of the package for a model log written to disk."""
    with tempfile.TemporaryDirectory() as directory:
        (opened,) = kafkastore.open(log.write(Path(directory) / "logs"))
        found = {target: opened.offset_for_timestamp(target, rules) for target in targets}
    return {target: None if answer is None else tuple(answer) for target, answer in found.items()}


def assert_equal(log, rules, model):
    targets = boundaries(log)
    assert answers(log, targets, rules) == {target: model(log, target) for target in targets}


@bounded(250)
@given(logs())
def test_the_right_answer_is_that_of_brute_force(log):
    assert_equal(log, "correct", correct_answer)


@pytest.mark.parametrize("rules", VERSIONS)
@bounded(80)
@given(logs())
def test_a_broker_s_answer_is_that_of_its_model(rules, log):
    version = VERSIONS[rules]
    assert_equal(log, rules, lambda log, target: broker_answer(log, target, version))
