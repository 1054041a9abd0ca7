"""Make golden data: run cases on real brokers, and archive what they left.

usage: python tests/golden/make OUTDIR [--version 2.4.0 ...] [--case NAME ...] [--seed WORD]

Jars are fetched by Maven on first use of a version. ``codecs`` needs confluent-kafka.
"""
from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from . import cases  # noqa: F401  (registers them)
from .archive import DEFAULT_SEED, write_archives
from .brokers import BROKERS, WORK
from .case_context import CaseContext, Surroundings
from .cases.registry import CASES
from .java import BROKER_FAILURES
from .java_client import JavaClients


def make_case(version: str, name: str, out: Path, around: Surroundings) -> bool:
    """Make one case of one version, and print the result.

    Parameters
    ----------
    version, name : str
        What is made.
    out : path
        ``<data>/<version>/<case>``.
    around : Surroundings
        What the run shares.

    Returns
    -------
    bool
        Whether everything was made.
    """
    began = time.monotonic()
    context = CaseContext(version, name, out, around)
    try:
        CASES[name].make(context)
        failure = " ".join(context.failed)
    except BROKER_FAILURES:
        failure = traceback.format_exc()[-2500:]
        context.abandon()
        around.clients.close()
    seconds = time.monotonic() - began
    word = "FAILED" if failure else "ok"
    print(f"{version:9} {name:30} {word:6} {seconds:6.1f} s", failure, flush=True)
    if failure:
        print("the brokers' files are in", context.run_directory, flush=True)
    else:
        context.remove_run_directory()
    return not failure


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("outdir", type=Path, help="gets the archives and MANIFEST.json")
    parser.add_argument("--version", action="append", help="again for more; default: all")
    parser.add_argument("--case", action="append", help="again for more; default: all")
    parser.add_argument("--seed", default=DEFAULT_SEED, help="of keys, values and timestamps")
    parser.add_argument("--data", type=Path, help="unpacked data; default: OUTDIR/data")
    parser.add_argument("--work", type=Path, default=WORK, help=f"jars and runs; default: {WORK}")
    parser.add_argument("--skip-existing", action="store_true", help="keep cases that are there")
    read = parser.parse_args(arguments)
    for wanted, known in ((read.version, BROKERS), (read.case, CASES)):
        if unknown := set(wanted or ()) - set(known):
            parser.error(f"no {', '.join(sorted(unknown))} among {', '.join(known)}")
    if "codecs" in (read.case or CASES) and find_spec("confluent_kafka") is None:
        parser.error("the case codecs needs confluent-kafka: install it, or choose with --case")
    return read


def main(command_line: Sequence[str] | None = None) -> int:
    """Run as a command; the status is 1 if a case failed."""
    arguments = _arguments(command_line)
    data = (arguments.data or arguments.outdir / "data").absolute()
    work = arguments.work.absolute()
    versions = arguments.version or list(BROKERS)
    all_made = True
    with JavaClients(work) as clients:
        around = Surroundings(arguments.seed, work, clients)
        for version in versions:
            for name, case in CASES.items():
                out = data / case.part / version / name
                skipped = arguments.skip_existing and any(out.glob("answers*.json"))
                chosen = not arguments.case or name in arguments.case
                if chosen and case.is_for(version) and not skipped:
                    all_made &= make_case(version, name, out, around)
    for part in sorted({case.part for case in CASES.values()}):
        if there := [version for version in versions if (data / part / version).is_dir()]:
            write_archives(data / part, arguments.outdir / part, there, arguments.seed)
    return 0 if all_made else 1
