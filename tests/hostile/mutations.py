"""Make hostile files from good ones: the same seed gives the same bytes.

bytes         cut, flipped, doubled, zeroed, swapped, empty
text          bytes, and NUL, other encodings, huge numbers, long lines
JSON, TOML    text, and values of other types, missing and doubled keys, deep nesting, thousands of digits
safetensors   bytes, and tensors missing, misshapen, of another type, not finite, and hostile metadata
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import safetensors.torch
import tomli_w
import torch

Mutate = Callable[[bytes, random.Random], bytes]

DEEP, DIGITS = 20_000, 5_000
NUMBERS = ("-1", "0", "1e999", "nan", "-inf", "9" * 40, "1e-320", "0x10", "½", "1_0", "9" * DIGITS)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**40,
    1e308,
    -0.5,
    "",
    "\0",
    "nan",
    "../../x",
    "a" * 300,
    "�" * 50,
    [],
    {},
    [[]],
    [None],
    {"": None},
    ["a", 1],
    [1.5] * 5,
    {"a": {"b": {"c": 1}}},
)


def of_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one piece cut, flipped, doubled, replaced or moved."""
    if not content:
        return chance.randbytes(9)
    a, b = sorted(chance.choices(range(len(content) + 1), k=2))
    place = chance.randrange(len(content))
    return chance.choice(
        (
            lambda: content[:a],
            lambda: content[: chance.randrange(min(len(content), 64))],
            lambda: (
                content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
            ),
            lambda: content[:a] + chance.randbytes(min(b - a, 64)) + content[min(b, a + 64) :],
            lambda: content[:a] + b"\0" * (b - a) + content[b:],
            lambda: content[:a] + content[b:],
            lambda: content[:b] + content[a:],
            lambda: content[b:] + content[:b],
            lambda: content + chance.randbytes(100),
            lambda: chance.randbytes(200),
            lambda: b"",
        )
    )()


def of_text(content: bytes, chance: random.Random) -> bytes:
    """Return the text with something in it that text should not have, or changed like any bytes."""
    place = chance.randrange(len(content) + 1)
    start, end = content[:place], content[place:]
    numbers = list(re.finditer(rb"\d+(\.\d+)?", content)) or [re.match(b"", content)]
    found = chance.choice([each for each in numbers if each is not None])
    number = chance.choice(NUMBERS).encode()
    return chance.choice(
        (
            lambda: of_bytes(content, chance),
            lambda: of_bytes(content, chance),
            lambda: content[: found.start()] + number + content[found.end() :],
            lambda: content[: found.start()] + number + content[found.end() :],
            lambda: start + b"\0" + end,
            lambda: start + b"\xff\xfe\xed\xa0\x80" + end,
            lambda: start + "\u2028\u202e\ufeff".encode() + end,
            lambda: content.decode().encode("utf-16"),
            lambda: b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"),
            lambda: start + b"x" * 200_000 + end,
            lambda: start + b'"' + end,
            lambda: start + chance.choice((b",", b";", b"\n", b"=", b"<", b"[", b"{")) * 3000 + end,
        )
    )()


def of_json(content: bytes, chance: random.Random) -> bytes:
    """Return JSON (or lines of it) with another value, a key too many or too few, or changed like any text."""
    lines = content.decode().splitlines()
    if chance.random() < 0.3 or not lines:
        return of_text(content, chance)
    is_lines = len(lines) > 1 and lines[0].endswith("}")
    at = chance.randrange(len(lines)) if is_lines else 0
    tree = json.loads(lines[at] if is_lines else content)
    parent, key = chance.choice(list(_places({"": tree})))
    special = chance.choice(("NaN", "1" * DIGITS, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP))
    how = chance.choice(("value", "value", "value", "special", "missing", "more", "twice"))
    root = {"": tree} if parent == {"": tree} else None
    holder = root if root is not None else parent
    if how == "value":
        holder[key] = chance.choice(VALUES)
    elif how == "special":
        holder[key] = "here"
    elif how == "missing" and root is None:
        del holder[key]
    elif isinstance(holder[key], dict):
        holder[key]["unknown key"] = 1
    text = json.dumps(tree if root is None else root[""])
    if how == "special":
        text = text.replace('"here"', special)
    if how == "twice" and text.startswith("{"):
        text = "{" + f'"{next(iter(tree), "")}": 3, ' + text[1:]
    return ("\n".join([*lines[:at], text, *lines[at + 1 :]]) + "\n" if is_lines else text).encode()


def of_toml(content: bytes, chance: random.Random) -> bytes:
    """Return TOML with another value, a key too many or too few, deep keys, or changed like any text."""
    import tomllib

    if chance.random() < 0.3:
        return of_text(content, chance)
    special = chance.choice(
        (
            "k = " + "[" * DEEP + "]" * DEEP,
            "k = " + "9" * DIGITS,
            ".".join(["k"] * 50_000) + " = 1",
            "k = " + "{a=" * 500 + "1" + "}" * 500,
            '"\\u0000" = 1',
            "[" + ".".join(["t"] * 2000) + "]",
            "k = 1\nk = 2",
            'k = "' + "\\u0000" + '"',
        )
    )
    if chance.random() < 0.3:
        return (
            special + "\n" + content.decode() if chance.random() < 0.7 else content.decode() + special
        ).encode()
    tree = tomllib.loads(content.decode())
    parent, key = chance.choice(list(_places(tree)))
    value = chance.choice([each for each in VALUES if each not in (None, [None], {"": None})])
    if chance.random() < 0.2:
        del parent[key]
    else:
        parent[key] = value
    return tomli_w.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield tree, key
        yield from _places(value)


def of_safetensors(content: bytes, chance: random.Random) -> bytes:
    """Return a whole file with other tensors or other metadata, or changed like any bytes."""
    if chance.random() < 0.35:
        return of_bytes(content, chance)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    if chance.random() < 0.3:
        text = of_json(json.dumps(header).encode(), chance)
        return len(text).to_bytes(8, "little") + text + content[8 + length :]
    if metadata and chance.random() < 0.3:
        name = chance.choice(list(metadata))
        try:
            metadata[name] = of_json(metadata[name].encode(), chance).decode(errors="replace")
        except ValueError:  # a plain word
            metadata[name] = chance.choice(("", "\0", "-1", "9" * DIGITS, "a,,b", "nan"))
        return safetensors.torch.save(safetensors.torch.load(content), metadata)
    tensors = safetensors.torch.load(content)
    name = chance.choice(sorted(tensors))
    if changed := _tensor(tensors.pop(name), chance):
        tensors[name] = changed[0]
    return safetensors.torch.save(tensors, metadata)


def _tensor(tensor: torch.Tensor, chance: random.Random) -> list[torch.Tensor]:
    """Return the tensor in another shape, of another type or with other values; none where it is left out."""
    number = chance.choice((float("nan"), float("inf"), -1.0, 1e30, -(2.0**62), 0.0))
    return chance.choice(
        (
            list,
            lambda: [tensor.flatten()[: max(tensor.numel() - 1, 0)]],
            lambda: [tensor[:0] if tensor.ndim else tensor.reshape(1)],
            lambda: [tensor[: len(tensor) // 2].clone() if tensor.ndim else tensor.reshape(1, 1)],
            lambda: [torch.cat([tensor, tensor]) if tensor.ndim else tensor.reshape(1)],
            lambda: [tensor[None]],
            lambda: [tensor.T.contiguous() if tensor.ndim == 2 else tensor.reshape(-1)],
            lambda: [tensor.to(chance.choice((torch.float64, torch.int8, torch.bool, torch.float16)))],
            lambda: [torch.full_like(tensor.double(), number)],
            lambda: [torch.full_like(tensor, chance.choice((0, 1, 7)))],
        )
    )()


def deep_json(depth: int = 100_000) -> bytes:
    """Return JSON that no reader should follow to its end."""
    return b"[" * depth + b"]" * depth


def random_of(name: str, number: int) -> random.Random:
    """Return the source of chance of one case."""
    return random.Random(f"{name} {number}")
