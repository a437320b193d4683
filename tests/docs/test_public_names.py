"""Public names: each has an example that runs, and each has one meaning in the package."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import pytest

import mule

PACKAGE = Path(mule.__file__).parent

TYPER = {"app"}
"""Every file of a group of commands has one."""


def definitions() -> dict[str, set[str]]:
    """The modules that define each public name at their top level."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined_by(node):
                if not name.startswith("_"):
                    modules[name].add(module)
    return modules


def defined_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []


def is_command(module: str) -> bool:
    """A command's function is called like the command, which is often the word for what it does."""
    return module.startswith("cli.")


def docstring_of(name: str) -> str:
    """The docstring of a public name; a constant has the string that follows its assignment."""
    value = getattr(mule, name)
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value):
        return value.__doc__ or ""
    source = (PACKAGE / "novelty" / "scores.py").read_text(encoding="utf-8")
    body = ast.parse(source).body
    at = next(place for place, node in enumerate(body) if name in defined_by(node))
    text = body[at + 1]
    assert isinstance(text, ast.Expr)
    assert isinstance(text.value, ast.Constant)
    return str(text.value.value)


@pytest.mark.parametrize("name", [name for name in mule.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    assert ">>>" in docstring_of(name), f"mule.{name} has no doctest; add one to its docstring"


def test_a_name_has_one_meaning():
    twice = {
        name: {module for module in modules if not is_command(module)}
        for name, modules in definitions().items()
        if name not in TYPER
    }
    twice = {name: sorted(modules) for name, modules in twice.items() if len(modules) > 1}
    assert not twice, f"defined in more than one module; rename, or share one definition: {twice}"


def test_no_test_module_imports_another():
    """What tests share lies in modules of its own, so that one can be moved or deleted without the others."""
    root = Path(__file__).parents[2]
    for path in (*root.glob("tests/**/*.py"), *root.glob("studies/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else named
            assert not any(each.split(".")[-1].startswith("test_") for each in modules), path


def test_star_import_and_completion_offer_the_same_names():
    assert set(mule.__all__) == set(dir(mule))
    assert {"Model", "metrics", "OpenSetMetrics", "watch"} <= set(mule.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mule.nothing  # noqa: B018 - the access is the test
