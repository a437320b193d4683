"""Walk docs/REPRODUCE.md on miniatures of AVA and Charades: every command of the page, in its order.

The commands are read from the page, from the section on AVA to the one on the tables. Each gets what makes it small: one
epoch of small frames, random weights in place of published ones, and for the published detector the built-in one, which
finds rendered people, with the true boxes of the objects. A command that fails stops the walk. Finished rows of tables
stay, so a repeated walk is short.

    python -m examples.rehearsal            # in runs/rehearsal
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.miniatures import MiniatureSize, write_miniatures

PAGE = Path(__file__).resolve().parents[1] / "docs" / "REPRODUCE.md"
SECTIONS = ("AVA", "Charades", "The tables")
OUT = Path("runs/rehearsal")
SIZE = MiniatureSize(train_videos=6, test_videos=5, seconds=6)
SMALL = (
    "backbone.from_chance=true",
    "training.epochs=1",
    "training.batch_clips=4",
    "training.tensorboard=false",
    "schedule.warmup_epochs=0",
    "schedule.warmup_lr=",
    "schedule.milestones=[]",
    "view.short_sides_px=[64, 64]",
    "view.crop_px=64",
    "view.val_short_side_px=64",
    "data.num_frames=8",
    "loading.workers=0",
)
"""Settings of every training: one epoch of a few batches, clips of eight frames of 64 rows."""
OTHER_OPTIONS = {
    "train": tuple(word for setting in SMALL for word in ("--set", setting)),
    "evaluate": ("--resamples", "0", "--dropout-passes", "0"),
}
OTHER_OPTIONS["compare"] = (*OTHER_OPTIONS["train"], *OTHER_OPTIONS["evaluate"], "--workers", "2")


def commands_of(page: str, sections: Sequence[str] = SECTIONS) -> list[str]:
    """Return the `mule` commands of some sections of a page, in order."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    found: list[str] = []
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        if title.strip() in sections:
            for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
                lines = block.replace("\\\n", " ").splitlines()
                found += [line.split("  #")[0].strip() for line in lines if line.startswith("mule ")]
    return found


def made_small(command: str) -> list[str]:
    """Return the words of a command with what makes it small."""
    words = shlex.split(command)[1:]
    if words[:2] == ["data", "detect"]:
        at = words.index("--detector")
        objects = Path(words[2]).parent / "boxes" / "objects.csv"
        words[at : at + 2] = ["--detector", "builtin", "--detector", str(objects)]
    return [*words, *OTHER_OPTIONS.get(words[0], ())]


def main(out: Path = OUT) -> None:
    """Write the miniatures, run every command in their folder, and print what each took."""
    started_at = time.perf_counter()
    if not (out / "charades" / "Charades_v1_classes.txt").is_file():
        write_miniatures(out, SIZE)
    mule = Path(sys.executable).with_name("mule")
    for command in commands_of(PAGE.read_text(encoding="utf-8")):
        began_at = time.perf_counter()
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            [mule, *made_small(command)], cwd=out, capture_output=True, text=True, check=False
        )
        print(f"  {time.perf_counter() - began_at:.0f} s", flush=True)
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
            raise SystemExit(f"{' '.join(made_small(command))}: exit code {done.returncode}")
    for table in sorted(out.glob("runs/*/table-?.md")):
        print(f"\n{table.read_text(encoding='utf-8')}")
    print(
        f"the whole page in {(time.perf_counter() - started_at) / 60:.1f} minutes; tables in {out / 'runs'}"
    )


if __name__ == "__main__":
    main()
