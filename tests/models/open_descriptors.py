"""The descriptors that this process has open."""
import os


def open_descriptors() -> set[int]:
    """List them, without those of /proc, where the watchdog reads meanwhile in its own thread."""
    return {int(name) for name in os.listdir("/dev/fd") if not _target(name).startswith("/proc/")}


def _target(descriptor: str) -> str:
    """Return the path of an open file, where there is /proc."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return "" if not os.path.isdir("/proc/self/fd") else "/proc/"  # closed meanwhile
