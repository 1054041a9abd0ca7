"""A store that is written: every object appears whole, or not at all."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafkastore.errors import RemoteObjectChangedError
from kafkastore.remote.stores import RemoteObject, RemoteStore, failed, is_other_content

#: Larger objects are sent in pieces of that many bytes.
PIECE_BYTES = 8 << 20


class NewStore(RemoteStore):
    """The place that a URL names, to put objects there.

    Parameters
    ----------
    url, options
        As of `RemoteStore`.
    """

    def there(self) -> dict[str, RemoteObject]:
        """List what is there, as `list` does; it may be nothing, or a copy that is not finished.

        Raises
        ------
        RemoteStoreError
            If it can't be listed, or there is no such bucket.
        """
        try:
            found = self._find()
        except FileNotFoundError as error:
            if self._is_s3:
                remedy = "make the bucket, or look for a slip in its name"
                raise failed(self.url, error, remedy=remedy, done="written") from error
            found = {}
        except Exception as error:
            raise failed(self.url, error) from error
        return self._objects(found, are_all=False)

    def contains(self, other: RemoteStore) -> bool:
        """Tell whether all of another store is part of this one, whatever the URLs are."""
        return self._library is other._library and f"{other._root}/".startswith(f"{self._root}/")

    def put_new(self, path: str, data: bytes) -> bool:
        """Make a small object, if there is none of that name.

        Parameters
        ----------
        path : str
            Below the URL.
        data : bytes
            What is in it.

        Returns
        -------
        bool
            Whether it was made. S3 looks for itself; in other stores somebody may come between.

        Raises
        ------
        RemoteStoreError
            If it can't be written.
        """
        try:
            with self._written(path, FileExistsError):
                if self._is_s3:
                    self._library.pipe_file(self._name(path), data, mode="create")
                elif self._library.exists(self._name(path)):
                    return False
                else:
                    self._library.pipe_file(self._name(path), data)
        except FileExistsError:
            return False
        return True

    def put(self, path: str, chunks: Iterable[bytes | memoryview], size: int) -> None:
        """Make an object.

        Parameters
        ----------
        path : str
            Below the URL.
        chunks : iterable of bytes
            What is in it. Where this raises, nothing appears.
        size : int
            How many bytes.

        Raises
        ------
        RemoteStoreError
            If it can't be written.
        """
        name = self._name(path)
        if size <= PIECE_BYTES:
            data = b"".join(chunks)
            with self._written(path):
                self._library.pipe_file(name, data)
            return
        with self._written(path):
            file = self._library.open(name, "wb", block_size=PIECE_BYTES, autocommit=False)
        try:
            for chunk in chunks:
                with self._written(path):
                    file.write(chunk)
            with self._written(path):
                file.close()
        except BaseException:
            with suppress(Exception):
                if hasattr(file, "discard"):
                    file.closed = True  # or the collector would close it, which sends the rest
                    file.discard()
                else:  # Hadoop's, where a file grows under its name
                    file.close()
                    self._library.rm_file(name)
            raise
        with self._written(path):
            if hasattr(file, "commit"):
                file.commit()

    def copy(self, path: str, source: RemoteObject) -> bool:
        """Make an object of another one in the same store, which copies it by itself.

        Parameters
        ----------
        path : str
            Below the URL.
        source : RemoteObject
            As it was listed.

        Returns
        -------
        bool
            False, and nothing done, where it is in another store.

        Raises
        ------
        RemoteObjectChangedError
            If the source is another one now.
        RemoteStoreError
            If it can't be written.
        """
        if source.store._library is not self._library:
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
                            source.url, "is another one than was listed"
                        ) from error
                    raise
            else:
                source.store.check_unchanged(source)
                self._library.cp_file(source.name, self._name(path))
                source.store.check_unchanged(source)
        return True

    def remove(self, path: str) -> None:
        """Remove an object.

        Raises
        ------
        RemoteStoreError
            If that can't be done.
        """
        with self._written(path):
            self._library.rm_file(self._name(path))

    def _name(self, path: str) -> Any:
        return f"{self._root}/{path}"

    @contextmanager
    def _written(self, path: str, *expected: type[Exception]) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # libraries raise what they like
            if isinstance(error, (RemoteObjectChangedError, *expected)):
                raise
            raise failed(f"{self.url}/{path}", error, done="written") from error
