"""Test the installed wheel as a user without the sources would use it.

Run with a Python that has the wheel and its dependencies, without Spark, without Java, from a
folder that is not the project's.
"""
import contextlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

files = [Path(file) for file in importlib.metadata.files("kafkastore")]
not_shipped = {"..", "__pycache__"}  # scripts, and what pip compiled
shipped = [
    file
    for file in files
    if ".dist-info" not in file.parts[0] and not_shipped.isdisjoint(file.parts)
]

top_level = {file.parts[0] for file in shipped}
assert top_level == {"kafkastore", "pyspark_kafkastore.py"}, top_level
sources = [str(file) for file in shipped if file.suffix in (".pyx", ".c", ".o")]
assert not sources, sources
compiled = {file.name.partition(".")[0]: file.parent for file in shipped if file.suffix == ".so"}
stubs = {file.stem: file.parent for file in shipped if file.suffix == ".pyi"}
assert compiled == stubs, (compiled, stubs)
assert Path("kafkastore", "py.typed") in shipped

assert shutil.which("java") is None
assert importlib.util.find_spec("pyspark") is None
assert importlib.util.find_spec("pyarrow") is None
import kafkastore  # noqa: E402

assert Path(kafkastore.__file__).is_relative_to(sys.prefix), kafkastore.__file__
for module in pkgutil.walk_packages(kafkastore.__path__, "kafkastore."):
    # Modules in spark derive from PySpark's classes; others need Polars, and pytest.
    if not module.name.startswith(
        ("kafkastore.spark", "kafkastore.polars")
    ) and not module.name.endswith(("__main__", "pytest_plugin")):
        with contextlib.suppress(kafkastore.MissingExtraError):  # those that need pyarrow
            importlib.import_module(module.name)

command = Path(sys.executable).with_name("kafkastore")
with tempfile.TemporaryDirectory() as folder:
    sample = f"{folder}/sample"
    for arguments in (["--help"], ["sample", sample], ["ls", f"{sample}/0.8.2.2"]):
        subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL)
print(f"{len(shipped)} files, {len(compiled)} of them compiled")
