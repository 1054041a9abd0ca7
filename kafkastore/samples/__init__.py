"""Small log directories of real brokers, for trying commands.

Each is the ``log.dirs`` directory of one broker from before the time index, after a clean shutdown,
with the topics ``up`` (two partitions), ``up-compressed`` and ``up-empty``. It has the name of the
broker's version. 0.8.2.2 and 0.9.0.1 wrote messages without timestamps (magic 0), 0.10.0.1 with
timestamps (magic 1); none has a ``.timeindex``.
"""
from __future__ import annotations

import shutil
from pathlib import Path

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.samples.unpacking import unpack_archive

_FOLDER = Path(__file__).parent
_SUFFIX = ".tar.xz"


def names() -> tuple[str, ...]:
    """Return the names of the samples, which are Kafka versions, the oldest first.

    >>> names()
    ('0.8.2.2', '0.9.0.1', '0.10.0.1')
    """
    found = (path.name.removesuffix(_SUFFIX) for path in _FOLDER.glob("*" + _SUFFIX))
    return tuple(sorted(found, key=lambda name: tuple(int(part) for part in name.split("."))))


def unpack(destination: Path) -> list[Path]:
    """Unpack every sample into a new or empty directory, with its modification times.

    Returns the log directories in the order of `names`; each is complete or missing. Raises
    ChangeRefusedError if `destination` is not an empty directory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [root.name for root in unpack(Path(folder) / "samples")]
    ['0.8.2.2', '0.9.0.1', '0.10.0.1']
    """
    destination = Path(destination)
    if destination.exists() and not destination.is_dir():
        raise ChangeRefusedError(
            f"destination must be a directory, got the file {destination}",
            RefusalReason.NOT_A_DIRECTORY,
            destination,
        )
    destination.mkdir(parents=True, exist_ok=True)
    present = sorted(path.name for path in destination.iterdir())
    if present:
        raise ChangeRefusedError(
            f"destination must be an empty directory, got {destination} with {present[0]}",
            RefusalReason.NOT_EMPTY,
            destination,
        )
    return [_unpack_sample(name, destination) for name in names()]


def _unpack_sample(name: str, destination: Path) -> Path:
    """Unpack one sample next to its destination, and move it there."""
    root = destination / name
    partial = destination / f".{name}.partial"
    partial.mkdir()
    try:
        unpack_archive(_FOLDER / (name + _SUFFIX), partial)
        partial.rename(root)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return root
