"""The files that this process has open."""
import fcntl
import os
from pathlib import Path


def open_files(directory: str | os.PathLike[str]) -> list[str]:
    """List the files at or below a directory that are open, one entry per descriptor.

    Others belong to threads that a test knows nothing of: PySpark's, the watchdog's.
    """
    below = os.path.join(os.path.realpath(directory), "")
    paths = (_path(int(name)) for name in os.listdir("/dev/fd"))
    return sorted(path for path in paths if os.path.join(path, "").startswith(below))


def _path(descriptor: int) -> str:
    """Return the path of a descriptor, or '' if it is closed or not a file."""
    try:
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
            return os.fsdecode(found.rstrip(b"\0"))
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""
