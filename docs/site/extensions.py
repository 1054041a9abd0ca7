"""Docstrings of compiled modules, whose ``.pyi`` files have none."""
from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe


class CompiledDocstrings(griffe.Extension):
    """Take the docstrings that stubs lack from the compiled modules."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Give an object of a stub the docstring that it has when imported."""
        if obj.is_module or obj.filepath.suffix != ".pyi" or obj.name.startswith("_"):
            return
        found: Any = import_module(obj.module.path)
        for name in obj.path.removeprefix(f"{obj.module.path}.").split("."):
            found = inspect.getattr_static(found, name, None)
        has_docstring = inspect.isclass(found) or inspect.isroutine(found)
        if has_docstring or inspect.isgetsetdescriptor(found) or isinstance(found, property):
            # Cython puts the signature before the docstring.
            text = re.sub(rf"\A[\w.]*\b{obj.name}\(.*\n+", "", inspect.getdoc(found) or "")
            obj.docstring = griffe.Docstring(
                text, parent=obj,
                parser=loader.docstring_parser, parser_options=loader.docstring_options,
            )
