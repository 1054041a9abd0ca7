"""The path objects of remote stores: their text is the URL, system calls use a local file."""
from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from models.refused import change_refused

from kafkastore.paths import forget_listings, is_url, name_url, open_path, refuse_remote, to_path
from kafkastore.remote.mount import RemotePath

URL = "memory://logs of all"


@pytest.fixture
def listed() -> Iterator[Path]:
    """Return the path of a store in memory."""
    library: Any = fsspec.filesystem("memory")
    library.pipe_file("/logs of all/t-0/1.log", b"some")
    library.pipe_file("/logs of all/meta.properties", b"")
    yield open_path(URL)
    library.rm("/", recursive=True)


def test_a_path_is_printed_as_its_url(listed: Path) -> None:
    path = listed / "t-0" / "1.log"
    url = f"{URL}/t-0/1.log"
    assert [str(path), f"{path}", path.as_posix(), path.as_uri()] == [url] * 4
    assert repr(path) == f"RemotePath({url!r})"
    for related in (path.parent, *path.parents[:1], path.absolute().parent, path.resolve().parent):
        assert str(related) == f"{URL}/t-0"
    assert str(path.with_name("2.log")) == f"{URL}/t-0/2.log"
    assert str(path.with_suffix(".index")) == f"{URL}/t-0/1.index"
    assert (path.name, path.stem, str(path.relative_to(listed))) == ("1.log", "1", "t-0/1.log")


def test_opening_a_path_opens_the_local_file(listed: Path) -> None:
    path = listed / "t-0" / "1.log"
    assert os.fspath(path).startswith("/")
    assert os.stat(path).st_size == path.stat().st_size == path.lstat().st_size == 4
    assert (path.is_file(), path.parent.is_dir(), path.exists()) == (True, True, True)
    assert not (listed / "t-1").exists()
    assert os.fsencode(path) == bytes(path)
    with path.open("rb") as by_method, open(path, "rb") as by_function:
        assert os.path.samestat(os.fstat(by_method.fileno()), os.fstat(by_function.fileno()))


def test_files_in_a_directory_have_urls(listed: Path) -> None:
    directory, file = f"{URL}/t-0", f"{URL}/t-0/1.log"
    inside = {directory, f"{URL}/meta.properties"}
    assert set(map(str, listed.iterdir())) == set(map(str, listed.glob("*"))) == inside
    assert list(map(str, listed.glob("*/*.log"))) == [file]
    assert set(map(str, listed.rglob("*"))) == inside | {file}
    assert isinstance(listed, RemotePath)
    walked = {str(place): (inner, names) for place, inner, names in listed.walk()}
    assert walked == {URL: (["t-0"], ["meta.properties"]), directory: ([], ["1.log"])}


def test_paths_of_the_same_url_are_equal(listed: Path) -> None:
    path = listed / "t-0"
    for other in (
        to_path(f"{URL}/t-0"), to_path(os.fspath(path)), to_path(path), copy.deepcopy(path),
        pickle.loads(pickle.dumps(path)), open_path(path),
    ):
        assert (other, hash(other), str(other)) == (path, hash(path), str(path))
    assert path != Path(os.fspath(path)) != path
    assert path < to_path(f"{URL}/t-1")


def test_local_paths_and_urls_of_files_are_paths(tmp_path: Path) -> None:
    for given in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"LOCAL://{tmp_path}"):
        assert not is_url(given)
        assert to_path(given) == open_path(given) == tmp_path
        assert type(to_path(given)) is type(tmp_path)
        refuse_remote(given)


def test_remote_files_are_never_changed(listed: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(listed)
    for given in (URL, listed, os.fspath(listed), link):
        with change_refused("unsupported", URL):
            refuse_remote(given)


def test_a_path_is_listed_once_until_listings_are_forgotten(listed: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/logs of all/t-0/2.log", b"more")
    assert not (open_path(listed) / "t-0" / "2.log").exists()
    forget_listings()
    assert (open_path(listed) / "t-0" / "2.log").exists()
    fsspec.filesystem("memory").pipe_file("/logs of all/t-0/3.log", b"more")
    assert (open_path(URL) / "t-0" / "3.log").exists()


def test_os_errors_name_the_url(listed: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (listed / "t-1").read_bytes()
    name_url(raised.value)
    assert raised.value.filename == f"{URL}/t-1"
