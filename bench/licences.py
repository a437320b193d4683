"""The licences of everything MULE needs, from the metadata of what is installed.

    python -m bench.licences [--write]

Printed, or written to docs/LICENCES.md: the packages that MULE, its extras and its development need, and theirs in turn;
and the libraries inside the wheel of PyAV.
"""

import argparse
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import av._core
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "LICENCES.md"
BUNDLED = {
    "SvtAv1Enc": "BSD-3-Clause-Clear", "Xau": "MIT", "asound": "LGPL-2.1-or-later", "dav1d": "BSD-2-Clause",
    "drm": "MIT", "gmp": "LGPL-3.0-or-later or GPL-2.0-or-later", "gnutls": "LGPL-2.1-or-later",
    "hogweed": "LGPL-3.0-or-later or GPL-2.0-or-later", "mp3lame": "LGPL-2.0-or-later",
    "nettle": "LGPL-3.0-or-later or GPL-2.0-or-later", "opencore-amrnb": "Apache-2.0", "opencore-amrwb": "Apache-2.0",
    "opus": "BSD-3-Clause", "sharpyuv": "BSD-3-Clause", "unistring": "LGPL-3.0-or-later or GPL-2.0-or-later",
    "vpl": "MIT", "vpx": "BSD-3-Clause", "webp": "BSD-3-Clause", "webpmux": "BSD-3-Clause",
    "x264": "**GPL-2.0-or-later**", "x265": "**GPL-2.0-or-later**", "xcb": "MIT",
}  # fmt: skip
"""Licences that the projects of these libraries state; their binaries carry none."""
HEAD = """# Licences

`python -m bench.licences --write` writes this page from the metadata of what is installed. MULE itself is Apache-2.0.

*used by*: `mule` is needed to run it, `[name]` by one of its extras, and `dev` by development alone.

| package | version | licence, as its metadata states it | used by |
|---|---|---|---|
"""
INSIDE = """
## Inside the wheel of PyAV

The wheel of PyAV {version} brings FFmpeg, which calls itself "{licence}", and these libraries. Two of them have the GPL:
libx264 and libx265. `annotated.mp4` is written in VP9 by libvpx; libx264 writes videos with `mule watch --codec h264` and
`mule stage render`, and libx265 none. Whoever must not ship GPL parts builds PyAV without these two.

| library | licence of its project |
|---|---|
"""


def needed(requirements: Iterable[str], extras: Iterable[str] = ("",)) -> dict[str, Distribution]:
    """Return the installed packages among the requirements, and those that they need in turn."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(each), set(extras) or {""}) for each in requirements]
    seen: set[str] = set()
    while waiting:
        wanted, own = waiting.pop()
        if wanted.marker is not None and not any(wanted.marker.evaluate({"extra": each}) for each in own):
            continue
        key = f"{canonicalize_name(wanted.name)}[{','.join(sorted(wanted.extras))}]"
        if key in seen:
            continue
        seen.add(key)
        try:
            package = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        found[canonicalize_name(wanted.name)] = package
        waiting += [(Requirement(each), {"", *wanted.extras}) for each in package.requires or ()]
    return found


def licence_of(package: Distribution) -> str:
    """Return the licence in a package's metadata: its expression, its classifiers, or the first line of its text."""
    about = package.metadata
    (expression, *_) = about.get_all("License-Expression") or [""]
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License :: OSI Approved :: ")
    ]
    text = "".join(about.get_all("License") or []).strip().partition("\n")[0]
    return (expression or ", ".join(classifiers) or text[:80] or "not stated").replace("|", "/")


def page() -> str:
    """Return the whole page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {"mule": project["project"]["dependencies"]}
    groups |= {f"[{name}]": each for name, each in project["project"]["optional-dependencies"].items()}
    groups["dev"] = project["dependency-groups"]["dev"]
    packages: dict[str, Distribution] = {}
    used_by: dict[str, list[str]] = {}
    for group, requirements in groups.items():
        for name, package in needed(requirements).items():
            packages[name] = package
            used_by.setdefault(name, []).append(group)
    rows = [
        f"| {name} | {package.version} | {licence_of(package)} | {_users(used_by[name])} |"
        for name, package in sorted(packages.items())
    ]
    return HEAD + "\n".join(rows) + "\n" + _inside_av()


def _users(groups: list[str]) -> str:
    return "mule" if "mule" in groups else ", ".join(each for each in groups if each != "dev") or "dev"


def _inside_av() -> str:
    place = Path(av.__file__).parent.parent / "av.libs"
    names = sorted(
        {re.split(r"-[0-9a-f]{8}\.", path.name)[0].removeprefix("lib") for path in place.glob("lib*.so*")}
    )
    facts = av._core.library_meta["libavcodec"]
    rows = [f"| lib{name} | {_bundled(name, facts['license'])} |" for name in names]
    return INSIDE.format(version=av.__version__, licence=facts["license"]) + "\n".join(rows) + "\n"


def _bundled(name: str, ffmpeg: str) -> str:
    if name.startswith(("av", "sw")):
        return f"FFmpeg: {ffmpeg}"
    return BUNDLED.get(name) or BUNDLED.get(name.partition("-")[0], "not known here")


def main() -> None:
    parser = argparse.ArgumentParser(description="Licences of all that MULE needs.")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
