"""Tiered topics of a running broker: its answers are those from its directory afterwards.

Other records, segments and times in every run, as its seed has it.
"""

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.cases.registry import CASES
from golden.make.java_client import JavaClients
from lookup.test_tiered_topics import STARTING_IN_REMOTE_STORAGE, compare
from models.seed import SEED, some
from models.tiered_directory import VERSIONS, TieredDirectory

import kafkastore
from kafkastore.writing.topic_settings import remote_settings_of

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("version", some(list(VERSIONS), 1, __name__))
def test_answers_from_the_directory_are_those_of_the_broker(require_broker, tmp_path, version):
    require_broker(version)
    with JavaClients(WORK) as clients:
        around = Surroundings(str(SEED), WORK, clients)
        context = CaseContext(version, "tiered", tmp_path / "tiered", around)
        try:
            CASES["tiered"].make(context)
        finally:
            context.remove_run_directory()
    tiered = TieredDirectory(version, tmp_path)
    settings = remote_settings_of(kafkastore.open(tiered.logs))
    for topic in tiered.topics:
        log = tiered.log(topic, configured=False)
        settings.apply_to(log)
        assert log.remote_storage is tiered.storage(topic)
        remote = compare(log, tiered.rows(topic), tiered.rules)
        assert (remote > 0) == (topic in STARTING_IN_REMOTE_STORAGE), topic
