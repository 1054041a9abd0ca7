"""The files that this process has open."""
import os


def open_descriptors() -> set[int]:
    """List the descriptors of files.

    Without sockets, which PySpark's finalizers open, and without /proc, which the watchdog reads in
    its own thread. Where there is no /proc, all descriptors are listed.
    """
    return {int(name) for name in os.listdir("/dev/fd") if _is_file(name)}


def _is_file(descriptor: str) -> bool:
    if not os.path.isdir("/proc/self/fd"):
        return True
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False  # closed meanwhile
    return target.startswith("/") and not target.startswith("/proc/")
