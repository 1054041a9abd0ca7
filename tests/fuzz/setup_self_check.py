"""Compile `self_check.pyx`; `sanitized_build` calls it."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path(__file__).with_name("self_check.pyx").relative_to(Path.cwd())

setup(
    name="self_check",
    packages=[],
    ext_modules=cythonize([Extension("self_check", [str(SOURCE)])], build_dir="build/cython"),
)
