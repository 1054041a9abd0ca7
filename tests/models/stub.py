"""A stub against the module it describes."""

import ast
import inspect
from pathlib import Path


def differences(module):
    """What a module's `.pyi` says otherwise than the module: names, parameters, defaults."""
    stub = Path(module.__file__).with_name(module.__name__.rpartition(".")[2] + ".pyi")
    tree = ast.parse(stub.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value) or inspect.isclass(value):
            continue
        if getattr(value, "__module__", module.__name__) != module.__name__:
            continue
        if callable(value) and name not in functions:
            found.append(f"function {name} is not in the stub")
        elif isinstance(value, int | str | bytes) and name not in constants:
            found.append(f"constant {name} is not in the stub")
    for name in constants - vars(module).keys():
        found.append(f"constant {name} is only in the stub")
    for name, node in functions.items():
        real = inspect.signature(getattr(module, name)).parameters.values()
        real_names = [
            (parameter.name, parameter.kind is parameter.KEYWORD_ONLY) for parameter in real
        ]
        stub_names = [(argument.arg, False) for argument in node.args.posonlyargs + node.args.args]
        stub_names += [(argument.arg, True) for argument in node.args.kwonlyargs]
        if real_names != stub_names:
            found.append(f"{name}: {stub_names} in the stub, {real_names} in the module")
        required = sum(parameter.default is parameter.empty for parameter in real)
        optional = len(node.args.defaults) + sum(d is not None for d in node.args.kw_defaults)
        if required != len(stub_names) - optional:
            found.append(f"{name}: defaults differ")
    return found
