"""Live groups of every kind: a directory shows what its broker answered before it was killed."""
from __future__ import annotations

from pathlib import Path

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.cases.groups import groups
from golden.make.java_client import JavaClients
from models.seed import some
from use_cases.group_answers import FORMS, Answers, Read

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("version", some(["4.1.1", "4.3.1"], 1, __name__))
def test_groups_are_those_that_the_broker_describes(
    require_broker, tmp_path: Path, version: str
) -> None:
    require_broker(version)
    require_broker(f"{version}-groups")
    case = tmp_path / "groups"
    with JavaClients(WORK) as clients:
        context = CaseContext(version, "groups", case, Surroundings("groups", WORK, clients))
        try:
            groups(context)
        finally:
            context.abandon()
            context.remove_run_directory()
    answers, read = Answers(case), Read(case)
    for form in FORMS:
        assert getattr(read, form)() == getattr(answers, form)(), form
    assert read.offsets() == answers.offsets_after_load()
    expected = answers.members()
    found = read.members()
    assert found.keys() == expected.keys()
    for key, member in found.items():
        # 4.1 leaves out what a member should give up.
        has_too_much = {} != member[-2] != member[-1] != {}
        assert member == expected[key] or (answers.is_4_1 and has_too_much), key
