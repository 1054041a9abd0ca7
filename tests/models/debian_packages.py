"""Programs of Debian's packages, unpacked into a folder, which needs no root."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def fetch(packages: Sequence[str], root: Path) -> None:
    """Unpack packages and the libraries that this system lacks, by current package lists.

    Several processes may fetch at the same time.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="fetching-") as name:
        folder = Path(name)
        for each in ("lists/partial", "archives/partial", "debs", "root"):
            (folder / each).mkdir(parents=True)
        settings = (
            f"Dir::State::Lists={folder / 'lists'}",
            f"Dir::Cache={folder}",
            "APT::Sandbox::User=",
        )
        apt = ["apt-get", "-q", *(f"-o{setting}" for setting in settings)]

        def run(*words: str) -> str:
            done = subprocess.run(
                words,
                cwd=folder / "debs",
                text=True,
                capture_output=True,
                env=os.environ | {"LC_ALL": "C"},
            )
            if done.returncode:
                raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
            return done.stdout

        run(*apt, "update")
        plan = run(*apt, "--simulate", "--no-install-recommends", "install", *packages)
        wanted = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        run(*apt, "download", *wanted)
        for package in sorted((folder / "debs").iterdir()):
            run("dpkg-deb", "--extract", str(package), str(folder / "root"))
        try:
            (folder / "root").rename(root)
        except OSError:  # another process was faster
            if not root.is_dir():
                raise


def library_path(root: Path) -> str:
    """Return the folders of the unpacked libraries."""
    return ":".join(sorted({str(path.parent) for path in root.rglob("*.so*")}))
