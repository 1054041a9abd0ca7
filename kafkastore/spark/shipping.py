"""What executors need of this package, as one archive that Spark carries to them."""
from __future__ import annotations

import importlib.util
import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from os import PathLike
from pathlib import Path

from kafkastore.errors import KafkaStoreError

FOLDER = "kafkastore-archive"
#: PySpark's own workers cannot do without them, and they are large.
ON_EXECUTORS = ("numpy", "pyarrow")
OF_THE_COMMAND_LINE = ("click", "rich")
#: In an editable installation these are not in the folder of the package.
FOLDERS_ELSEWHERE = ("kafkastore.legacy", "kafkastore.migration")
#: Only needed to compile, or to check types.
SOURCES = (".pyx", ".pxd", ".h", ".pyi")


class ArchiveError(KafkaStoreError):
    """An archive for executors that can't be made."""


def archive(path: str | PathLike[str]) -> dict[str, str]:
    """Write an archive of this package for executors that do not have it.

    Parameters
    ----------
    path : path-like
        The file to write, ``.zip``; one that is there is replaced.

    Returns
    -------
    dict
        The options that make Spark carry it to its executors and put it on their path, for
        `session` or for a builder of your own.

    Raises
    ------
    ArchiveError
        If the path does not end with ``.zip``, by which Spark knows what to unpack, or a library
        can't be found.

    Notes
    -----
    In it are this package and the libraries it needs, as they are installed here, but numpy and
    pyarrow, which the executors' Python must have. They are compiled: executors need the same
    platform and the same version of Python.

    Examples
    --------
    >>> spark = session("spark://host:7077", **archive("kafkastore.zip"))    # doctest: +SKIP
    """
    target = Path(path).absolute()
    if target.suffix != ".zip":
        raise ArchiveError(f"{target}: the name must end in .zip, or Spark does not unpack it")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as written:
        for name, source in sorted((dict(_libraries()) | dict(_package())).items()):
            written.write(source, name)
    return {
        "spark.archives": f"{target}#{FOLDER}",
        # Relative to an executor's own directory, where Spark unpacks it.
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def _package() -> Iterator[tuple[str, Path]]:
    """Yield the files of this package; nothing of it is imported for that."""
    yield from _files_of("kafkastore")
    for name in FOLDERS_ELSEWHERE:
        yield from _files_of(name)


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package, and of the packages in its folder."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ArchiveError(f"the package {name} is not installed")
    for folder in spec.submodule_search_locations:
        for file in Path(folder).rglob("*"):
            inside = file.relative_to(folder)
            if file.is_file() and "__pycache__" not in inside.parts and file.suffix not in SOURCES:
                yield f"{name.replace('.', '/')}/{inside}", file


def _libraries() -> Iterator[tuple[str, Path]]:
    """Yield the files of the libraries that this package needs in a task."""
    for requirement in metadata.requires("kafkastore") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if "extra ==" in requirement or name in (*ON_EXECUTORS, *OF_THE_COMMAND_LINE):
            continue
        for file in metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield str(file), Path(str(file.locate()))
