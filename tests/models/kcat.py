"""kcat, of `PATH` or else of Debian's package, which is fetched on first use."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from models import debian_packages

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "kcat")


@cache
def search_path() -> str:
    """Return a `PATH` with kcat."""
    found = os.environ["PATH"]
    if shutil.which("kcat") is not None:
        return found
    root = CACHE / "root"
    if not root.is_dir():
        debian_packages.fetch(["kcat"], root)
    program = CACHE / "bin" / "kcat"
    program.parent.mkdir(exist_ok=True)
    new = program.with_name(f"kcat-{os.getpid()}")
    libraries = debian_packages.library_path(root)
    new.write_text(f"#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{root}/usr/bin/kcat' \"$@\"\n")
    new.chmod(0o755)
    new.replace(program)
    return f"{program.parent}{os.pathsep}{found}"
