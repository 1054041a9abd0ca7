"""An archive of this package and its libraries for Spark's executors."""
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
#: PySpark's workers need them anyway, and they are large.
ON_EXECUTORS = ("numpy", "pyarrow")
OF_THE_COMMAND_LINE = ("click", "rich")
#: In an editable installation these are not in the package's folder.
FOLDERS_ELSEWHERE = ("kafkastore.legacy", "kafkastore.migration")
#: Only needed to compile, or to check types.
SOURCES = (".pyx", ".pxd", ".h", ".pyi")


class ArchiveError(KafkaStoreError):
    """An archive for executors cannot be built."""


def archive(path: str | PathLike[str]) -> dict[str, str]:
    """Write an archive of this package for executors that do not have it installed.

    Parameters
    ----------
    path : path-like
        The ``.zip`` file to write; an existing file is replaced.

    Returns
    -------
    dict
        The options that make Spark copy the archive to its executors and put it on their Python
        path, for `session` or for your own session builder.

    Raises
    ------
    ArchiveError
        If the path does not end with ``.zip``, which Spark needs to unpack it, or a library cannot
        be found.

    Notes
    -----
    The archive contains this package and the libraries it needs, as they are installed here, except
    numpy and pyarrow, which the executors' Python must have. They are compiled: executors need the
    same platform and the same version of Python.

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
        # Relative to the executor's working directory, where Spark unpacks the archive.
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def _package() -> Iterator[tuple[str, Path]]:
    """Yield the files of this package without importing it."""
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
