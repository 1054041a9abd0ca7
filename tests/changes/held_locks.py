"""Other processes that hold, or try to take, a lock file as a broker does."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HOLD = (
    "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
    "fcntl.lockf(d, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
)
_TRY = (
    "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR);"
    "fcntl.lockf(d, fcntl.LOCK_EX | fcntl.LOCK_NB)"
)


def hold(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds a lock file until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def can_lock(path: Path) -> bool:
    """Return whether another process gets the lock."""
    tried = subprocess.run(
        [sys.executable, "-c", _TRY, str(path)], stderr=subprocess.DEVNULL, check=False
    )
    return tried.returncode == 0
