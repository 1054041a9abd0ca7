"""The data directory that the cases filled, as one archive per Kafka version with a manifest.

usage, from tests/golden:  python -m make.archive DATA OUTDIR [--version 2.4.0 ...] [--seed WORD]
                           python -m make.archive DATA --samples SAMPLES

An archive is a function of the files' bytes and of the mtimes in the answers files, so that DATA
may have lost its own mtimes (git keeps none) and making an archive twice gives the same bytes.
MANIFEST.json in OUTDIR keeps what it says of versions that are not archived now.
"""
from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .brokers import version_key

MANIFEST = "MANIFEST.json"
SUFFIX = ".tar.xz"
DEFAULT_SEED = "data"
# Brokers from before the time index, whose directories are shipped as samples.
SAMPLE_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1")
SAMPLE_LOGS = Path("upgrade", "logs")


def recorded_mtimes(case: Path) -> dict[Path, int]:
    """Collect the mtimes that a case's answers files record.

    Parameters
    ----------
    case : path
        ``DATA/<version>/<case>``.

    Returns
    -------
    dict of path to int
        ms since 1970, by path relative to the case.
    """
    recorded: dict[Path, int] = {}
    for answers_file in sorted(case.glob("answers*.json")):
        answers = json.loads(answers_file.read_text())
        for name, ms in answers["mtimes_ms"].items():
            recorded[Path(answers["logs"], name)] = ms
        # A damaged directory has no answers of its own: nothing was queried before the restart.
        for name, ms in answers.get("mtimes_before_ms", {}).items():
            recorded.setdefault(Path("logs", name), ms)
    return recorded


def pack(source: Path, paths: Iterable[Path], mtimes_ms: dict[Path, int]) -> bytes:
    """Create a reproducible tar archive, which depends only on the arguments.

    Parameters
    ----------
    source : path
        The directory that `paths` are relative to.
    paths : iterable of path
        Files and directories. A file in no `mtimes_ms` gets the newest of them.
    mtimes_ms : dict of path to int
        ms since 1970, by relative path.

    Returns
    -------
    bytes
        A pax tar: sorted, without owners, modes 0644 and 0755.
    """
    newest_ms = max(mtimes_ms.values(), default=0)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths):
            member = tarfile.TarInfo(path.as_posix())  # owned by no particular user
            seconds, ms = divmod(mtimes_ms.get(path, newest_ms), 1000)
            member.mtime = seconds
            if ms:  # as text: a float would not keep it exactly
                member.pax_headers = {"mtime": f"{seconds}.{ms:03}"}
            if (source / path).is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
            else:
                data = (source / path).read_bytes()
                member.size, member.mode = len(data), 0o644
                tar.addfile(member, io.BytesIO(data))
    return plain.getvalue()


def compress(archive: bytes) -> bytes:
    """Compress an archive as small as xz can."""
    return lzma.compress(archive, preset=9 | lzma.PRESET_EXTREME)


def pack_version(version_directory: Path) -> bytes:
    """Make the archive of all cases of one Kafka version."""
    paths = [path.relative_to(version_directory) for path in version_directory.rglob("*")]
    mtimes_ms: dict[Path, int] = {}
    for case in sorted(path for path in version_directory.iterdir() if path.is_dir()):
        recorded = recorded_mtimes(case)
        mtimes_ms |= {Path(case.name) / path: ms for path, ms in recorded.items()}
    for path in paths:
        in_logs = len(path.parts) > 2 and path.parts[1].startswith("logs")
        if in_logs and path not in mtimes_ms and (version_directory / path).is_file():
            raise ValueError(f"no answers file records the mtime of {version_directory / path}")
    return pack(version_directory, paths, mtimes_ms)


def list_cases(version_directory: Path) -> dict[str, dict[str, Any]]:
    """List what each case has: its answers files with their directories, and all directories."""
    cases = {}
    for case in sorted(path for path in version_directory.iterdir() if path.is_dir()):
        cases[case.name] = {
            "answers": {
                path.stem: json.loads(path.read_text())["logs"]
                for path in sorted(case.glob("answers*.json"))
            },
            "logs": sorted(path.name for path in case.glob("logs*")),
        }
    return cases


def recorded_seed(version_directory: Path) -> str | None:
    """Return the seed that the answers files name, if they name one."""
    answers = (json.loads(path.read_text()) for path in version_directory.glob("*/answers*.json"))
    seeds = {seed for seed in (answer.get("seed") for answer in answers) if seed is not None}
    if len(seeds) > 1:
        raise ValueError(f"{version_directory} mixes the seeds {sorted(seeds)}")
    return seeds.pop() if seeds else None


def write_archives(
    data: Path, out: Path, versions: Iterable[str] | None = None, seed: str = DEFAULT_SEED
) -> None:
    """Archive versions of a data directory and write them into a manifest.

    Parameters
    ----------
    data : path
        Holds ``<version>/<case>``.
    out : path
        Gets ``<version>.tar.xz`` and ``MANIFEST.json``.
    versions : iterable of str, optional
        All that `data` has, by default.
    seed : str
        The seed of data whose answers files name none.
    """
    out.mkdir(parents=True, exist_ok=True)
    manifest_file = out / MANIFEST
    described = json.loads(manifest_file.read_text()) if manifest_file.exists() else {}
    for version in versions or [path.name for path in data.glob("[0-9]*") if path.is_dir()]:
        archive = compress(pack_version(data / version))
        (out / (version + SUFFIX)).write_bytes(archive)
        used_seed = recorded_seed(data / version) or seed
        described[version] = {
            "archive": version + SUFFIX,
            "sha256": hashlib.sha256(archive).hexdigest(),
            "size": len(archive),
            "seed": used_seed,
            "made_by": f"python tests/golden/make OUTDIR --seed {used_seed} --version {version}",
            "cases": list_cases(data / version),
        }
    in_order = {version: described[version] for version in sorted(described, key=version_key)}
    manifest_file.write_text(json.dumps(in_order, indent=1) + "\n")


def write_samples(data: Path, samples: Path) -> None:
    """Write the directories from before the time index as the package ships them."""
    for version in SAMPLE_VERSIONS:
        logs = data / version / SAMPLE_LOGS
        recorded = recorded_mtimes(logs.parent)
        mtimes_ms = {
            path.relative_to(logs.name): ms
            for path, ms in recorded.items()
            if path.parts[0] == logs.name
        }
        paths = [path.relative_to(logs) for path in logs.rglob("*")]
        (samples / (version + SUFFIX)).write_bytes(compress(pack(logs, paths, mtimes_ms)))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("outdir", type=Path, nargs="?")
    parser.add_argument("--version", action="append", help="again for more; default: all")
    parser.add_argument("--seed", default=DEFAULT_SEED, help="of answers files that name none")
    parser.add_argument("--samples", type=Path, help="write the package's samples into this folder")
    arguments = parser.parse_args()
    if arguments.outdir:
        write_archives(arguments.data, arguments.outdir, arguments.version, arguments.seed)
    if arguments.samples:
        write_samples(arguments.data, arguments.samples)


if __name__ == "__main__":
    main()
