"""Fuzz parsers, or try an input again; see ``CONTRIBUTING.md`` for long runs."""

import argparse
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.campaign import FOLDER, fuzz, run_target
from fuzz.golden_inputs import golden_inputs, inputs_of, unpacked
from fuzz.parsers import PARSERS
from fuzz.sanitized_build import build


def main() -> int:
    """Return 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PARSER", help=f"{', '.join(PARSERS)}; all")
    parser.add_argument("--seconds", type=int, default=30, help="for each parser; 30")
    parser.add_argument("--seed", type=int, help="of chance; a new one each time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time; the cores")
    parser.add_argument("--input", type=Path, help="a file to try again")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(PARSERS):
        parser.error(f"no parser {', '.join(sorted(unknown))}")
    compiled = build(for_fuzzing=True)
    if arguments.input:
        if len(arguments.names) != 1:
            parser.error("--input needs one parser")
        result = run_target(compiled, *arguments.names, str(arguments.input.resolve()))
        print(result.stdout)
        return result.returncode != 0
    seed = arguments.seed or random.randrange(1, 2**31)
    with unpacked() as directory_of:
        inputs = golden_inputs(directory_of)

    def run(name):
        found = fuzz(compiled, name, inputs_of(name, inputs), seconds=arguments.seconds, seed=seed)
        print(found, flush=True)
        if found.findings:
            print(found.output[-8000:], flush=True)
        return bool(found.findings)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        failed = sum(pool.map(run, arguments.names or PARSERS))
    print(f"inputs are kept in {FOLDER}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
