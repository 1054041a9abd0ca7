"""Fuzzing, led by the coverage of compiled code and of Python: golden inputs in, findings out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fuzz.sanitized_build import BUILD, ROOT, SanitizedBuild

FOLDER = BUILD / "fuzz"
LARGEST_INPUT = 4096
#: An input that takes longer is a finding, as is one that takes more memory.
TIMEOUT_SECONDS = 5
RSS_LIMIT_MB = 2048
LARGEST_ALLOCATION_MB = 256

_COVERAGE = re.compile(r"\t(INITED|DONE)\s+cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Outcome:
    """The result of fuzzing a target.

    Attributes
    ----------
    name, seed
        The target, and what chance was seeded with.
    features_at_start, features
        What libFuzzer counts: blocks run, by how often; of the inputs it began with, and at the
        end. 0 where it did not come so far.
    findings
        Files with the inputs that ended it.
    output
        What it said.
    """

    name: str
    seed: int
    features_at_start: int
    features: int
    findings: tuple[Path, ...]
    output: str

    def __str__(self) -> str:
        if not self.findings:
            grown = f"{self.features_at_start} features at start, {self.features} at the end"
            return f"{self.name}, seed {self.seed}: {grown}"
        file = self.findings[0]
        again = f"cd tests && ../.venv/bin/python -m fuzz {self.name} --input {file}"
        return f"{self.name}, seed {self.seed}: found {file}; to try it again: {again}"


def fuzz(
    build: SanitizedBuild,
    name: str,
    inputs: Iterable[bytes],
    *,
    seconds: int,
    seed: int,
    folder: Path = FOLDER,
    fresh: bool = False,
) -> Outcome:
    """Fuzz one target for some time, or until something is found.

    Interesting inputs are kept in ``corpus``, and the next run continues from them unless
    ``fresh``; failures are kept in ``found``.
    """
    golden, corpus, found = (folder / name / part for part in ("golden", "corpus", "found"))
    shutil.rmtree(golden, ignore_errors=True)
    if fresh:
        shutil.rmtree(corpus, ignore_errors=True)
    for directory in (golden, corpus, found):
        directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (golden / f"{number:03}").write_bytes(data)
    before = set(found.iterdir())
    result = run_target(
        build,
        name,
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={LARGEST_INPUT}",
        f"-artifact_prefix={found}/",
        str(corpus),
        str(golden),
    )
    findings = tuple(sorted(set(found.iterdir()) - before))
    if result.returncode and not findings:
        ended = f"target {name} ended with {result.returncode} and kept no input"
        raise RuntimeError(f"{ended}:\n{result.stdout[-4000:]}")
    features = {event: int(count) for event, _, count in _COVERAGE.findall(result.stdout)}
    return Outcome(
        name,
        seed,
        features.get("INITED", 0),
        features.get("DONE", 0),
        findings,
        result.stdout,
    )


def run_target(
    build: SanitizedBuild, name: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a target with libFuzzer's arguments; its output is all in ``stdout``."""
    limits = f":max_allocation_size_mb={LARGEST_ALLOCATION_MB}"
    environment = {
        **build.environment,
        "ASAN_OPTIONS": build.environment["ASAN_OPTIONS"] + limits,
        "PYTHONHASHSEED": "0",
    }
    return subprocess.run(
        [
            *(sys.executable, "-m", "fuzz.target", name),
            *(f"-timeout={TIMEOUT_SECONDS}", f"-rss_limit_mb={RSS_LIMIT_MB}"),
            *arguments,
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
