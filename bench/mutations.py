"""The mutants of a file: copies of its code with one operator, number or name changed."""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent

BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CALLS = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "any": "all", "all": "any"}
CALLS |= {"argmin": "argmax", "argmax": "argmin", "logical_or": "logical_and", "logical_and": "logical_or"}


class Mutant(NamedTuple):
    """One change to one file."""

    file: str
    """Relative to the repository."""
    function: str
    """The function or class that is changed; empty at module level."""
    change: str
    """Code before and after, in one line."""
    number: int
    """Among mutants of this function with this change."""
    source: str

    @property
    def name(self) -> str:
        """Identifies the mutant, wherever its function moves in the file."""
        place = " ".join(filter(None, (self.file.removeprefix("src/mule/"), self.function)))
        return f"{place}: {self.change}" + (f" #{self.number}" if self.number else "")


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of one file, in the order of the code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = Counter[tuple[str, str]]()
    for function, node in _code(tree):
        for replacement in _replacements(node):
            change = f"`{_shown(node)}` → `{_shown(replacement)}`"
            number, seen[function, change] = seen[function, change], seen[function, change] + 1
            mutated = _Swap(node, replacement).visit(copy.deepcopy(tree))
            source = ast.unparse(ast.fix_missing_locations(mutated)) + "\n"
            yield Mutant(str(path.relative_to(REPOSITORY)), function, change, number, source)


def _code(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Nodes that run, with the function they belong to: no annotations, no texts, nothing inside `raise`."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_code = isinstance(child, ast.AST) and not isinstance(child, (ast.Raise, ast.JoinedStr))
            if is_code and not _is_type_alias(child):
                inside = (
                    getattr(child, "name", "") if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else ""
                )
                name = ".".join(filter(None, (function, inside)))
                yield name, child
                yield from _code(child, name)


def _is_type_alias(node: ast.AST) -> bool:
    """`Boxes = Float[...]` at module level has no behaviour to test."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript):
        return False
    named = node.value.value
    return isinstance(named, ast.Name) and named.id in {
        "Float",
        "Int",
        "Bool",
        "Shaped",
        "Literal",
        "Callable",
    }


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            yield ast.BinOp(left, BINARY[type(op)](), right)
        case ast.Compare(left, [op], right) if type(op) in COMPARE:
            yield ast.Compare(left, [COMPARE[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.USub(), ast.Constant(int())):
            return  # an index from the end: -1 and 1 are the same axis of a matrix
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case _:
            yield from _other_names_and_numbers(node)


def _other_names_and_numbers(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Attribute(owner, name, context) if name in CALLS:
            yield ast.Attribute(owner, CALLS[name], context)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), arguments, keywords)


class _Swap(ast.NodeTransformer):
    """Replace the node; find it in a copy of the tree by its position."""

    def __init__(self, node: ast.AST, replacement: ast.AST) -> None:
        self._place, self._replacement = _place(node), replacement

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if _place(node) == self._place:
            return copy.deepcopy(self._replacement)
        return super().generic_visit(node)


def _place(node: ast.AST) -> tuple[object, ...]:
    ends = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return (type(node), *(getattr(node, end, None) for end in ends))


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split()).replace("`", "'").replace("|", "∣")
    return text if len(text) <= 70 else text[:69] + "…"
