"""Some seconds of coverage-guided fuzzing for some parsers; and it finds planted faults."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from fuzz import campaign, sanitized_build
from fuzz.golden_inputs import golden_inputs, inputs_of
from fuzz.parsers import PARSERS
from models.seed import SEED, one_in, some

pytestmark = [
    pytest.mark.fuzz,
    # Targets run in parallel, and a test may wait for all targets before its own.
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64",
        reason="atheris is there for x86-64 Linux",
    ),
]

SECONDS = 12 // one_in(2)
#: A busy machine tries few inputs in that time; then the run continues.
MOST_SECONDS = 300
FAULTS = {
    "find_magic": "the magic bytes were found",
    "read_past_end": "heap-buffer-overflow",
    "hang": "timeout",
    "use_much_memory": "MemoryError",
}


@pytest.fixture(scope="module")
def compiled():
    return sanitized_build.build(for_fuzzing=True)


@pytest.fixture(scope="module")
def campaigns(request, compiled, golden):
    """A future of the findings for each parser whose test will run; as many at a time as cores."""
    inputs = golden_inputs(lambda version, case: golden(version, case, "answers").root)
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if getattr(item, "originalname", None) == test_a_parser_is_fuzzed.__name__
    ]

    def run(name):
        seconds, is_first = SECONDS, True
        while True:
            outcome = campaign.fuzz(
                compiled,
                name,
                inputs_of(name, inputs),
                seconds=seconds,
                seed=max(SEED, 1),  # 0 draws another
                folder=campaign.FOLDER / "test",
                fresh=is_first,
            )
            has_grown = outcome.features > outcome.features_at_start
            if outcome.findings or has_grown or seconds > MOST_SECONDS:
                return outcome
            seconds, is_first = seconds * 8, False

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(run, name) for name in names}


@pytest.mark.parametrize("name", some(list(PARSERS), 8, "fuzzed parsers"))
def test_a_parser_is_fuzzed(name, campaigns):
    outcome = campaigns[name].result()
    print(outcome)
    assert not outcome.findings, f"{outcome}\n{outcome.output[-6000:]}"
    # Golden inputs alone do not reach this code: the coverage guides the fuzzer to it.
    assert outcome.features > outcome.features_at_start > 0


@pytest.mark.parametrize("fault", some(list(FAULTS), 2, "faults"))
def test_a_fault_is_found_and_its_input_kept(fault, compiled, tmp_path):
    outcome = campaign.fuzz(compiled, fault, [b"0"], seconds=120, seed=1, folder=tmp_path)
    assert len(outcome.findings) == 1, outcome.output[-4000:]
    assert FAULTS[fault] in outcome.output
    if fault == "find_magic":
        assert outcome.findings[0].read_bytes()[:8] == b"kafka\xfe\x00\x2a"
    again = campaign.run_target(compiled, fault, str(outcome.findings[0]))
    assert again.returncode != 0
    assert FAULTS[fault] in again.stdout
