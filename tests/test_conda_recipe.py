"""The recipe for conda-forge renders, and states the requirements of pyproject.toml."""
from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import rattler_build

import kafkastore

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "packaging/conda/recipe.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: Names on conda-forge that are not those on PyPI.
NAMES = {
    "duckdb": "python-duckdb", "isal": "python-isal", "prometheus-client": "prometheus_client",
    "pyspark[sql]": "pyspark", "xxhash": "python-xxhash",
}


def as_conda(requirement: str) -> str:
    """Write a requirement as conda does."""
    name, bounds = re.fullmatch(r"([\w\[\]-]+)(.*)", requirement).groups()
    return f"{NAMES.get(name, name.lower())} {bounds}"


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return rattler_build.Stage0Recipe.from_file(RECIPE).to_dict()


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64", "osx-arm64"])
def test_recipe_renders_for_each_platform(platform: str) -> None:
    stage = rattler_build.Stage0Recipe.from_file(RECIPE)
    config = rattler_build.RenderConfig(
        platform=rattler_build.PlatformConfig(target_platform=platform)
    )
    variants = rattler_build.VariantConfig(
        {"python": ["3.11.*", "3.14.*"], "c_stdlib": ["stdlib"]}  # conda-forge has these
    )
    rendered = stage.render(variants, config)
    assert len(rendered) == 2


def test_recipe_with_an_unknown_key_is_refused() -> None:
    text = RECIPE.read_text().replace("  run_constraints:", "  run_constrained:")
    with pytest.raises(rattler_build.RecipeParseError):
        rattler_build.Stage0Recipe.from_yaml(text)


def test_recipe_needs_what_the_package_needs(recipe: dict[str, Any]) -> None:
    needs = recipe["requirements"]
    run = {"python", *map(as_conda, PROJECT["project"]["dependencies"])}
    assert set(needs["run"]) == run
    host = {"python", "pip", *map(as_conda, PROJECT["build-system"]["requires"])}
    assert set(needs["host"]) == host
    extras = PROJECT["project"]["optional-dependencies"]
    optional = {
        as_conda(each) for name, extra in extras.items() if name not in ("dev", "spark")
        for each in extra
    }
    optional |= {as_conda(each) for each in extras["spark"] if each.startswith("pyspark")}
    assert set(needs["run_constraints"]) == optional


def test_recipe_states_version_licence_and_its_files(recipe: dict[str, Any]) -> None:
    assert recipe["context"]["version"] == kafkastore.__version__
    about = recipe["about"]
    assert about["license"] == PROJECT["project"]["license"]
    assert about["summary"] == PROJECT["project"]["description"]
    files = {
        str(path.relative_to(ROOT)) for pattern in PROJECT["project"]["license-files"]
        for path in ROOT.glob(pattern)
    }
    assert set(about["license_file"]) == files


def test_commands_with_which_the_recipe_tests_the_package_work(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    (script,) = (each["script"]["content"] for each in recipe["tests"] if "script" in each)
    assert any(line.startswith("kafkastore ls") for line in script)
    for line in script:
        words = line.split()
        done = subprocess.run(
            [Path(sys.executable).with_name(words[0]), *words[1:]],
            cwd=tmp_path, capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr

