"""Tests of the formats again, in a build with AddressSanitizer and UndefinedBehaviorSanitizer.

And those of threads, in one with ThreadSanitizer.
"""

import pytest
from fuzz import sanitized_build
from models.seed import SEED, some

pytestmark = [pytest.mark.sanitizer, pytest.mark.timeout(1200)]

#: Tests that read bytes in compiled code, or pass bytes of their own to it.
TESTS = (
    "cli/test_parquet_parts",
    "formats/test_append_sets",
    "formats/test_batch_header",
    "formats/test_compression",
    "formats/test_crc",
    "formats/test_decompression",
    "formats/test_damaged_bytes",
    "formats/test_index_builder",
    "formats/test_message_set",
    "formats/test_messages",
    "formats/test_offset_index",
    "formats/test_record_batch",
    "formats/test_record_builder",
    "formats/test_record_columns",
    "formats/test_producer_state",
    "formats/test_time_index",
    "formats/test_transactions",
    "formats/test_varint",
)
#: This test reads gigabytes, which takes minutes here.
LEFT_OUT = "not test_records_that_were_not_requested_take_no_memory"

MODULE_FOLDERS = """
import sys
from pathlib import Path
import {modules}
packages = Path(sys.argv[1])
for module in ({modules},):
    assert Path(module.__file__).is_relative_to(packages), module.__file__
    assert b"__asan_report_load" in Path(module.__file__).read_bytes(), module.__file__
"""


@pytest.fixture(scope="module")
def sanitized():
    return sanitized_build.build()


def reported(build, code):
    result = build.run("-c", f"import self_check; {code}")
    assert result.returncode != 0, result.stdout
    return result.stderr


def test_every_compiled_module_that_is_imported_is_the_sanitized_one(sanitized):
    modules = [
        ".".join(path.relative_to(sanitized.packages).with_suffix("").parts).partition(".cp")[0]
        for path in sanitized.packages.rglob("*.so")
    ]
    assert "kafkastore.formats.records.record_columns" in modules
    code = MODULE_FOLDERS.format(modules=", ".join(modules))
    result = sanitized.run("-c", code, str(sanitized.packages))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("size", [100, 8, 1])
def test_a_byte_read_after_the_last_is_reported(sanitized, size):
    said = reported(sanitized, f"from fuzz.reading import exactly; "
                               f"self_check.read_past_end(exactly(bytes({size})))")  # fmt: skip
    assert "heap-buffer-overflow" in said
    assert "read_past_end" in said


def test_an_overflow_is_reported(sanitized):
    assert "signed integer overflow" in reported(sanitized, "self_check.overflow(2**31 - 1)")


def test_tests_of_the_formats_are_clean(sanitized, tmp_path):
    files = [f"tests/{name}.py" for name in some(TESTS, 4, "sanitized tests")]
    result = sanitized.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", LEFT_OUT, "--durations=10"),
        *("--timeout=1000", f"--basetemp={tmp_path / 'pytest'}", f"--randomly-seed={SEED}"),
        *files,
        reports=tmp_path,
    )
    said = [path.read_text() for path in sorted(tmp_path.glob("report*"))]
    assert not said, f"{said[0][:8000]}\n{result.stdout[-2000:]}"
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


#: Questions that compiled code answers; Arrow's own threads synchronise unseen.
OF_THREADS = "time or times or ListOffsets or batches or summaries or index or store or writer"
#: Questions that are slow if refreshes reread everything: each run tries one of them.
SLOW = ("committed", "untimed", "by", "Arrow")

RACE = """
import threading, self_check
threads = [threading.Thread(target=self_check.race, args=(5 * 10**7,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture(scope="module")
def sanitized_for_threads():
    return sanitized_build.build_for_threads()


def test_a_place_that_threads_write_to_is_reported(sanitized_for_threads):
    result = sanitized_for_threads.run("-c", RACE)
    assert result.returncode != 0
    assert "data race" in result.stderr
    assert "self_check" in result.stderr


def test_compiled_modules_share_no_place_that_threads_write_to(sanitized_for_threads, tmp_path):
    left_out = " or ".join(set(SLOW).difference(some(SLOW, 1, "slow questions"))) or "nothing"
    chosen = f"({OF_THREADS}) and not (refreshed and ({left_out}))"
    result = sanitized_for_threads.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "--timeout=600"),
        f"--basetemp={tmp_path / 'pytest'}", f"--randomly-seed={SEED}",
        "tests/log/test_threads.py",
        reports=tmp_path,
    )
    said = [path.read_text() for path in sorted(tmp_path.glob("report*"))]
    assert not said, f"{said[0][:8000]}\n{result.stdout[-2000:]}"
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
