"""Pieces of work that write: what each begins with, does, and leaves."""

import json
import tomllib
from fractions import Fraction

import safetensors.torch
from tiny_extraction import render, tiny_backbone

from mule.features.cache import Every
from mule.features.extraction import Extractor

TIMED = {"run.json", "log.txt"}
"""Files that say when, and so differ from run to run."""
GROWING = {"metrics.jsonl", "moments.jsonl", "log.txt"}
"""Files that are written line by line, and read without a last line that was cut off."""
NOTE = "what somebody wrote before"


def is_final(name):
    """Whether a file has its final name: it is not hidden, nor in a folder that is."""
    return not any(part.startswith(".") or part.endswith((".parts", ".tmp")) for part in name.parts)


def readable(name, content):
    """Whether a file is whole, as far as its kind can tell."""
    try:
        if name.suffix == ".json":
            json.loads(content)
        elif name.suffix == ".toml":
            tomllib.loads(content.decode())
        elif name.suffix == ".safetensors":
            safetensors.torch.load(content)
        else:
            return False
    except Exception:
        return False
    return True


class Work:
    """Work in a folder; its parts that need no trial are made once, in a shared one."""

    def __init__(self, shared):
        self.shared = shared

    def begin(self, folder):
        (folder / "note.txt").write_text(NOTE)

    def run(self, folder):
        raise NotImplementedError

    def files(self, folder):
        paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        return {name: (folder / name).read_bytes() for name in paths if is_final(name)}

    def result(self, folder):
        return {str(name): content for name, content in self.files(folder).items() if name.name not in TIMED}

    def kept(self, folder):
        """What the work has no reason to touch."""
        return {"note.txt": (folder / "note.txt").read_text()}

    def half_made(self, folder, clean):
        for name, content in self.files(folder).items():
            if name.name in GROWING or "checkpoints" in name.parts:
                continue  # both are read with care; the next run shows it
            if clean.get(str(name)) != content and not readable(name, content):
                yield f"{name} ({len(content)} bytes)"


class Extracting(Work):
    def __init__(self, shared):
        super().__init__(shared)
        self.video = render(shared / "stripes.mp4")

    def run(self, folder):
        Extractor(tiny_backbone(), folder / "maps", part_clips=4).extract(self.video, Every(Fraction(1)))


WORKS = {"extract": Extracting}
