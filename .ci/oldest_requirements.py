"""Print the oldest version that each lower bound of the package allows, one requirement a line.

`docs/upgrades.md` promises that the package works with them.
"""
import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
chosen = [*project["dependencies"], *(each for name in sys.argv[1:] for each in extras[name])]
for requirement in chosen:
    name, bound = re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+)", requirement).groups()
    print(f"{name}=={bound}.*")
