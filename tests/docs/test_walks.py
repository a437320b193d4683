"""The four walks of docs/ARCHITECTURE.md are the walks that commands take."""

import ast

import pytest

from bench import walks

LISTED = walks.listed_steps(walks.ARCHITECTURE.read_text())


def qualified_names(tree, prefix=""):
    """Every function of a module, by its `__qualname__`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from qualified_names(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name
            yield from qualified_names(node, f"{prefix}{node.name}.<locals>.")
        else:
            yield from qualified_names(node, prefix)


@pytest.mark.parametrize("name", LISTED)
def test_every_function_of_a_listed_walk_exists(name):
    assert LISTED[name]
    for step in LISTED[name]:
        file, function = step.split(": ")
        source = (walks.ARCHITECTURE.parents[1] / "src/mule" / file).read_text()
        assert function in set(qualified_names(ast.parse(source))), step


@pytest.mark.slow
def test_the_listed_walks_are_those_that_commands_take():
    traced = walks.measured()
    # sorted: threads of `mule watch` may enter their files in another order
    assert {name: sorted(walk.steps) for name, walk in traced.items()} == {
        name: sorted(steps) for name, steps in LISTED.items()
    }, "the code has changed: run `python -m bench.walks --write`."
