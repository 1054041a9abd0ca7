"""Write to a store: every object appears complete, or not at all."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from kafkastore.errors import RemoteObjectChangedError
from kafkastore.remote.stores import COPYING, RemoteObject, RemoteStore, failed, is_other_content

#: Larger objects are sent in parts of this many bytes.
PIECE_BYTES = 8 << 20
#: Directory of unfinished files, which get their names when they are complete; for HDFS, where
#: unfinished files are visible.
PARTS = f"{COPYING}-parts"


class NewStore(RemoteStore):
    """A URL at which objects are created."""

    def list_objects(self) -> dict[str, RemoteObject]:
        """List what exists except `PARTS`; it may be nothing, or an unfinished copy."""
        try:
            found = self._find()
        except FileNotFoundError as error:
            if self._is_s3:
                remedy = "create the bucket, or correct its name"
                raise failed(self.url, error, remedy=remedy, done="written") from error
            found = {}
        except Exception as error:
            raise failed(self.url, error) from error
        objects = self._objects(found, are_all=False)
        return {path: each for path, each in objects.items() if not path.startswith(f"{PARTS}/")}

    def contains(self, other: RemoteStore) -> bool:
        """Return whether this store contains another, whatever their URLs' form."""
        return self._library is other._library and f"{other._root}/".startswith(f"{self._root}/")

    def put_new(self, path: str, data: bytes) -> bool:
        """Create a small object unless the name exists; return whether it was created.

        S3 and HDFS check that themselves; in other stores another writer may create it meanwhile.
        """
        name = self._name(path)
        try:
            with self._written(path, FileExistsError):
                if self._is_s3:
                    self._library.pipe_file(name, data, mode="create")
                elif self._library.exists(name):
                    return False
                elif not self._is_hdfs:
                    self._library.pipe_file(name, data)
        except FileExistsError:
            return False
        return not self._is_hdfs or self._named(self._grown(path, [data]), path)

    def put(self, path: str, chunks: Iterable[bytes | memoryview], size: int) -> None:
        """Create an object of `size` bytes; if `chunks` raises, no object appears."""
        if self._is_hdfs:
            part = self._grown(path, chunks)
            if not self._named(part, path):
                self.remove(path)
                self._named(part, path)
        elif size <= PIECE_BYTES:
            data = b"".join(chunks)
            with self._written(path):
                self._library.pipe_file(self._name(path), data)
        else:
            self._put_pieces(path, chunks)

    def _put_pieces(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        with self._written(path):
            file = self._library.open(
                self._name(path), "wb", block_size=PIECE_BYTES, autocommit=False
            )

        def discard() -> None:
            file.closed = True  # otherwise its finalizer closes it, which sends the rest
            file.discard()

        self._send(path, file, chunks, discard)
        with self._written(path):
            file.commit()

    def _grown(self, path: str, chunks: Iterable[bytes | memoryview]) -> str:
        """Write a file under a temporary name, and return that name."""
        part = self._name(f"{PARTS}/{uuid4().hex}")
        with self._written(path):
            self._library.makedirs(self._name(PARTS), exist_ok=True)
            file = self._library.open(part, "wb", block_size=PIECE_BYTES)

        def remove() -> None:
            file.close()
            self._library.rm_file(part)

        self._send(path, file, chunks, remove)
        return part

    def _send(
        self,
        path: str,
        file: Any,
        chunks: Iterable[bytes | memoryview],
        give_up: Callable[[], None],
    ) -> None:
        """Write an open file completely and close it; on any exception, call `give_up`."""
        try:
            for chunk in chunks:
                with self._written(path):
                    file.write(chunk)
            with self._written(path):
                file.close()
        except BaseException:
            with suppress(Exception):
                give_up()
            raise

    def _named(self, part: str, path: str) -> bool:
        """Rename a file from its temporary name; return False if the name exists."""
        name = self._name(path)
        with self._written(path):
            self._library.makedirs(name.rpartition("/")[0], exist_ok=True)
            self._library.mv(part, name)
            return not self._library.exists(part)

    def remove_parts(self) -> None:
        """Remove the files that never got their final names."""
        with self._written(PARTS):
            if self._is_hdfs and self._library.exists(self._name(PARTS)):
                self._library.rm(self._name(PARTS), recursive=True)

    def copy(self, path: str, source: RemoteObject) -> bool:
        """Have the store copy one of its objects; return whether it did.

        It cannot copy from another store, and HDFS has no request to copy. Raises
        RemoteObjectChangedError if the source was replaced since it was listed.
        """
        if source.store._library is not self._library or self._is_hdfs:
            return False
        with self._written(path):
            if self._is_s3 and isinstance(source.version, str):
                bucket, _, key = self._name(path).partition("/")
                from_bucket, _, from_key = source.name.partition("/")
                try:
                    self._library.call_s3(
                        "copy_object",
                        Bucket=bucket,
                        Key=key,
                        CopySource={"Bucket": from_bucket, "Key": from_key},
                        CopySourceIfMatch=source.version,
                    )
                except Exception as error:
                    if isinstance(error, FileNotFoundError) or is_other_content(error):
                        raise RemoteObjectChangedError(
                            source.url, "has changed"
                        ) from error
                    raise
            else:
                source.store.check_unchanged(source)
                self._library.cp_file(source.name, self._name(path))
                source.store.check_unchanged(source)
        return True

    def remove(self, path: str) -> None:
        """Remove an object; another process may have removed it already."""
        with suppress(FileNotFoundError), self._written(path, FileNotFoundError):
            self._library.rm_file(self._name(path))

    @property
    def _is_hdfs(self) -> bool:
        """Whether unfinished files are visible and renames are atomic, unlike objects."""
        return bool({"hdfs", "webhdfs"} & {*self._protocols})

    def _name(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _written(self, path: str, *expected: type[Exception]) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # libraries raise any type
            if isinstance(error, (RemoteObjectChangedError, *expected)):
                raise
            raise failed(f"{self.url}/{path}", error, done="written") from error
