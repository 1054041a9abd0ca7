"""Object stores and HDFS through fsspec: list, read ranges, report failures.

Each store's library finds credentials, endpoints and regions as usual (``AWS_*`` variables,
``~/.aws``, fsspec's own configuration), or gets them as options.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from kafkastore.errors import NotALogDirectoryError, RemoteObjectChangedError, RemoteStoreError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The libraries' names for the modification time, and for the version of the content.
_MODIFIED = ("LastModified", "last_modified", "mtime", "updated", "modificationTime", "created")
_VERSION = ("ETag", "etag", "generation")
#: What to do if a library is not usable at all, by scheme.
_REMEDIES = {
    "hdfs": "check that Hadoop's native client is here (libhdfs, a Java by JAVA_HOME, CLASSPATH by "
    "hadoop classpath --glob) and that the name node answers; webhdfs://host:port/path needs none",
}
_LONGEST_REASON = 300
#: Object that marks an unfinished copy; its content identifies the copy.
COPYING = "kafkastore-copying"
#: Attempts for responses that break off; s3fs itself retries all other failures.
_ATTEMPTS = 3


class RemoteObject(NamedTuple):
    """An object as it was listed; `version` changes with its content."""

    store: RemoteStore
    name: str
    url: str
    size: int
    modified_ns: int
    version: object

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes [start, end) of the content that was listed.

        Raises RemoteObjectChangedError if the object was replaced, RemoteStoreError if it cannot be
        read.
        """
        return self.store.read(self, start, end)


class RemoteStore:
    """The store at a URL; `options` are for its library, such as s3fs.

    Raises RemoteStoreError if the library is missing or rejects the options.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        scheme, _, rest = url.partition("://")
        self.url = f"{scheme.lower()}://{rest.rstrip('/')}"
        parts = self.url.split("/")[2:]
        if not parts[0]:
            raise RemoteStoreError(
                self.url, "a bucket or host is missing: s3://bucket/path, webhdfs://host:port/path"
            )
        if {"", ".", ".."} & {*parts} or "::" in rest:
            raise RemoteStoreError(
                self.url, "its path must not have empty parts, dots or '::'"
            )
        try:
            from fsspec.core import url_to_fs

            # Listings must be current: the library must not cache older ones.
            found = url_to_fs(self.url, **{"use_listings_cache": False, **(options or {})})
        except ImportError as error:
            raise _no_library(self.url) from error
        except Exception as error:
            raise _unusable(self.url, error) from error
        self._library, self._root = found
        self._is_s3 = "s3" in self._protocols

    @property
    def _protocols(self) -> tuple[str, ...]:
        names = self._library.protocol
        return (names,) if isinstance(names, str) else tuple(names)

    def list(self) -> dict[str, RemoteObject]:
        """List all below the URL by relative path; "" is an object at the URL.

        Skips objects that cannot be files: names with ``..`` or an empty component, and names that
        are a directory of other objects.
        """
        return self._finished(self._objects(self._asked(self._find)))

    def list_directory(self) -> tuple[dict[str, RemoteObject], set[str]]:
        """List the objects and directories directly in the URL's directory."""
        listed = self._asked(lambda: self._library.ls(self._root, detail=True))
        found = {info["name"]: info for info in listed}
        directories = {
            name.rstrip("/").rpartition("/")[2]
            for name, info in found.items()
            if info["type"] == "directory"
        }
        objects = self._finished(self._objects(found, are_all=False))
        return objects, directories - {"", ".", ".."}

    def _finished(self, objects: dict[str, RemoteObject]) -> dict[str, RemoteObject]:
        if COPYING in objects:
            raise RemoteStoreError(
                self.url, "it is an unfinished copy; run the copy command again"
            )
        return objects

    def _find(self) -> Mapping[str, Mapping[str, Any]]:
        from fsspec import AbstractFileSystem

        if type(self._library).find is not AbstractFileSystem.find:
            found: Mapping[str, Mapping[str, Any]] = self._library.find(self._root, detail=True)
            return found
        # fsspec's own walk skips directories that it cannot list.
        files, directories = {}, [self._root]
        for directory in directories:
            for info in self._library.ls(directory, detail=True):
                name = info["name"].rstrip("/")
                if info["type"] != "directory":
                    files[name] = info
                elif name != directory:
                    directories.append(name)
        return files

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except FileNotFoundError:
            return {}
        except Exception as error:  # libraries raise any type
            raise failed(self.url, error) from error

    def _objects(
        self, found: Mapping[str, Mapping[str, Any]], *, are_all: bool = True
    ) -> dict[str, RemoteObject]:
        objects = {}
        for name, info in found.items():
            path = name[len(self._root) :].strip("/")
            parts = path.split("/") if path else []
            if info["type"] != "file" or name.endswith("/") or {"", ".", ".."} & {*parts}:
                continue
            url = f"{self.url}/{path}" if path else self.url
            modified_ns = _modified_ns(url, info)
            objects[path] = RemoteObject(
                self, name, url, int(info["size"]), modified_ns, _version(info) or modified_ns
            )
        directories = {
            path[:at] for path in objects for at in range(len(path)) if path[at] == "/"
        }
        directories |= {""} if len(objects) > 1 else set()
        for path in directories & objects.keys():
            del objects[path]
        if not objects and are_all:
            raise NotALogDirectoryError(f"{self.url} does not exist: no object has this prefix")
        return objects

    def read(self, asked: RemoteObject, start: int, end: int) -> bytes:
        """Read bytes of an object; see `RemoteObject.read`."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                data = self._range(asked, start, end)
            except RemoteObjectChangedError:
                raise
            except FileNotFoundError as error:
                raise RemoteObjectChangedError(asked.url, "is gone", start, end) from error
            except Exception as error:
                if is_other_content(error):
                    raise _changed(asked, start, end) from error
                if attempt < _ATTEMPTS and "Payload" in type(error).__name__:
                    continue
                raise failed(asked.url, error, start, end) from error
            if len(data) != end - start:
                raise _changed(asked, start, end)
            return data
        raise AssertionError("the last attempt raises or returns")

    def _range(self, asked: RemoteObject, start: int, end: int) -> bytes:
        if self._is_s3 and isinstance(asked.version, str):
            from fsspec.asyn import sync

            bucket, _, key = asked.name.partition("/")
            # The store itself compares the version: it never sends other content.
            answer = self._library.call_s3(
                "get_object",
                Bucket=bucket,
                Key=key,
                Range=f"bytes={start}-{end - 1}",
                IfMatch=asked.version,
            )
            return bytes(sync(self._library.loop, _whole_body, answer["Body"]))
        data: bytes = self._library.cat_file(asked.name, start=start, end=end)
        self.check_unchanged(asked, start, end)
        return data

    def check_unchanged(
        self, asked: RemoteObject, start: int | None = None, end: int | None = None
    ) -> None:
        """Raise RemoteObjectChangedError if an object was replaced."""
        try:
            now = self._library.info(asked.name)
        except FileNotFoundError as error:
            raise RemoteObjectChangedError(asked.url, "is gone", start, end) from error
        version = _version(now) or _modified_ns(asked.url, now)
        if (int(now["size"]), version) != (asked.size, asked.version):
            raise _changed(asked, start, end)


def is_other_content(error: Exception) -> bool:
    """Return whether S3 refused because of another version of the object."""
    return "PreconditionFailed" in repr(error.__cause__)


async def _whole_body(body: Any) -> bytes:
    async with body:  # closes the connection if it breaks off
        data: bytes = await body.read()
        return data


def _modified_ns(url: str, info: Mapping[str, Any]) -> int:
    """Return the modification time in ns; libraries represent it in several ways."""
    value = next((info[name] for name in _MODIFIED if info.get(name) is not None), None)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return (value - _EPOCH) // timedelta(microseconds=1) * 1000
    if isinstance(value, int) and "modificationTime" in info:
        return value * 1_000_000  # WebHDFS: ms
    if isinstance(value, int | float):
        return round(value * 1_000_000) * 1000
    raise RemoteStoreError(url, "its store does not report modification times")


def _is_denied(error: Exception) -> bool:
    answer = getattr(error, "response", None)  # HTTP, not interpreted by the library
    return (
        isinstance(error, PermissionError)
        or "Credentials" in type(error).__name__
        or getattr(answer, "status_code", None) in (401, 403)
    )


def _version(info: Mapping[str, Any]) -> object:
    return next((info[name] for name in _VERSION if info.get(name)), None)


def _changed(
    asked: RemoteObject, start: int | None, end: int | None
) -> RemoteObjectChangedError:
    return RemoteObjectChangedError(asked.url, "has changed", start, end)


def _no_library(url: str) -> RemoteStoreError:
    scheme = url.partition("://")[0]
    try:
        from fsspec.registry import known_implementations
    except ImportError:
        return RemoteStoreError(url, "fsspec is not installed: pip install 'kafkastore[remote]'")
    remedy = known_implementations.get(scheme, {}).get(
        "err", f"install fsspec's package for {scheme}://"
    )
    if scheme in ("s3", "s3a"):
        remedy = "pip install 'kafkastore[remote]'"
    return RemoteStoreError(url, f"the library for {scheme}:// is not installed: {remedy}")


def _unusable(url: str, error: Exception) -> RemoteStoreError:
    """Return an error with a remedy for a library that cannot be used at all."""
    scheme = url.partition("://")[0]
    if not _is_known(scheme):
        return RemoteStoreError(
            url,
            f"{scheme}:// is not known; known are s3://, gs://, abfs://, hdfs://, webhdfs:// and "
            "the other schemes of fsspec's packages",
        )
    if isinstance(error, TypeError):  # from the library's class, with the missing arguments
        return RemoteStoreError(
            url, f"{error}; give the missing arguments in the URL, or in storage_options"
        )
    return failed(url, error, remedy=_REMEDIES.get(scheme))


def _is_known(scheme: str) -> bool:
    """Return whether fsspec has a class for a scheme, installed or not."""
    from fsspec.registry import known_implementations, registry

    return scheme in known_implementations or scheme in registry


def failed(
    url: str,
    error: Exception,
    start: int | None = None,
    end: int | None = None,
    *,
    remedy: str | None = None,
    done: str = "read",
) -> RemoteStoreError:
    """Make a RemoteStoreError from a library's exception: the reason, and what to do.

    `start` and `end` are the requested bytes; `done` is as in RemoteStoreError.
    """
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON] + "..."
    if _is_denied(error):
        reason, remedy = f"access is denied ({reason})", "check credentials"
    remedy = remedy or "check the endpoint and the network, and try again"
    return RemoteStoreError(url, f"{reason}; {remedy}", start, end, done)
