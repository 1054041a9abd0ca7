"""The site of the documentation, built from a checkout."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(
    folder: Path, root: Path = ROOT, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder, from the files of a checkout."""
    config = root / "docs" / "site" / "mkdocs.yml"
    command = ["build", "--strict", f"--config-file={config}", f"--site-dir={folder}"]
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command],
        cwd=folder.parent, capture_output=True, text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert not check or ran.returncode == 0, ran.stderr
    return ran
