"""Build the wheel and use it as a stranger would: an empty environment, an empty folder, one video.

    python -m examples.try_package [--python python3.12] [--extras]
    python -m examples.try_package --notes VERSION

wheel ─▶ its size ─▶ empty environment ─▶ `mule stage render`, `mule watch`, `import mule` ─▶ each extra can be resolved

The environment gets the tested versions of constraints.txt. It is removed at the end; the wheel stays in dist/.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MOST_BYTES = 25_000_000
IN_PYTHON = """
import mule
model = mule.Model.load("stage")
moments = list(model.watch("takes/videos/{video}"))
print(mule.__version__, len(model.classes), "actions;", len(moments), "moments of", {{a.track_id for m in moments for a in m.actors}})
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, install and try; the first step that fails ends with its output and exit code 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the empty environment")
    parser.add_argument(
        "--extras", action="store_true", help="also resolve each extra, one by one; asks the package index"
    )
    parser.add_argument(
        "--notes", metavar="VERSION", help="print what CHANGELOG.md says of a version, and do nothing else"
    )
    wanted = parser.parse_args(arguments)
    if wanted.notes:
        print(release_notes((REPOSITORY / "CHANGELOG.md").read_text(), wanted.notes))
        return
    wheel = built_wheel()
    with tempfile.TemporaryDirectory(prefix="mule-package-") as folder:
        place = Path(folder)
        run([wanted.python, "-m", "venv", place / "venv"], place)
        python = place / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--constraint", REPOSITORY / "constraints.txt"]
        run([*install, wheel], place)
        use(place)
        if wanted.extras:
            for extra in extras():
                run([*install, "--dry-run", f"{wheel}[{extra}]"], place)
                print(f"extra {extra}: can be installed")


def built_wheel() -> Path:
    """Build the wheel into dist/ and check its size."""
    dist = REPOSITORY / "dist"
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, "."], REPOSITORY)
    wheel = max(dist.glob("mule_actions-*.whl"), key=lambda path: path.stat().st_mtime)
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        raise SystemExit(f"{wheel}: must have at most {MOST_BYTES / 1e6:g} MB.")
    return wheel


def use(place: Path) -> None:
    """Render a scene, watch it from the command line and from Python, and list what the smallest installation lacks."""
    mule = place / "venv" / "bin" / "mule"
    run([mule, "stage", "render", "takes", "--clips", "1", "--role", "test", "--seconds", "4"], place)
    (video,) = (path.name for path in (place / "takes" / "videos").iterdir())
    said = run([mule, "watch", Path("takes/videos", video), "--model", "stage", "--out", "watched"], place)
    print(said.rstrip())
    made = {path.name for path in (place / "watched").iterdir()}
    if not made >= {"report.html", "annotated.mp4", "moments.jsonl", "summary.txt"}:
        raise SystemExit(
            f"mule watch must write a report, a video, moments and a summary; it wrote {sorted(made)}."
        )
    print((place / "watched" / "summary.txt").read_text().rstrip())
    print(run([mule.with_name("python"), "-c", IN_PYTHON.format(video=video)], place).rstrip())


def release_notes(changelog: str, version: str) -> str:
    r"""Return the section of a version.

    >>> release_notes("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- New.\n\n## 0.1.0\n\n- First.\n", "0.2.0")
    '- New.'
    """
    for section in changelog.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title.split()[0] == version:
            return text.strip()
    raise SystemExit(f"CHANGELOG.md: must have a section '## {version}'; it has none.")


def extras() -> list[str]:
    """Return the names of the extras; torchvision is left out, it loads only beside the torch build it was made for."""
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return [name for name in about["project"]["optional-dependencies"] if name != "torchvision"]


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder, with a cache of its own; return what it prints."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    surroundings["XDG_CACHE_HOME"] = str(folder / "cache")
    surroundings["PIP_CACHE_DIR"] = os.environ.get("PIP_CACHE_DIR", str(Path("~/.cache/pip").expanduser()))
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=surroundings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
