"""A stub against the module it describes."""

import ast
import inspect
from pathlib import Path


def differences(module):
    """Differences between a module and its `.pyi`: names, parameters, defaults."""
    stub = Path(module.__file__).with_name(module.__name__.rpartition(".")[2] + ".pyi")
    tree = ast.parse(stub.read_text())
    constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", module.__name__) == module.__name__
    }
    found = _functions(own, tree, "")
    for name, value in own.items():
        if isinstance(value, int | str | bytes) and name not in constants:
            found.append(f"constant {name} is not in the stub")
    for name in constants - vars(module).keys():
        found.append(f"constant {name} is only in the stub")
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = {k: v for k, v in vars(own[node.name]).items() if not k.startswith("_")}
            found += _functions(methods, node, f"{node.name}.")
    return found


def _functions(real, tree, prefix):
    """Differences between a stub and the functions of a module or the methods of a class."""
    stubs = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name[0] != "_"
    }
    functions = {name: value for name, value in real.items() if inspect.isroutine(value)}
    found = [f"function {prefix}{name} is not in the stub" for name in functions.keys() - stubs]
    found += [f"function {prefix}{name} is only in the stub" for name in stubs.keys() - functions]
    for name in functions.keys() & stubs:
        node, parameters = stubs[name], inspect.signature(functions[name]).parameters.values()
        real_names = [
            (parameter.name, parameter.kind is parameter.KEYWORD_ONLY) for parameter in parameters
        ]
        stub_names = [(argument.arg, False) for argument in node.args.posonlyargs + node.args.args]
        stub_names += [(argument.arg, True) for argument in node.args.kwonlyargs]
        if real_names != stub_names:
            found.append(f"{prefix}{name}: {stub_names} in the stub, {real_names} in the module")
        required = sum(parameter.default is parameter.empty for parameter in parameters)
        optional = len(node.args.defaults) + sum(d is not None for d in node.args.kw_defaults)
        if required != len(stub_names) - optional:
            found.append(f"{prefix}{name}: defaults differ")
    return found
