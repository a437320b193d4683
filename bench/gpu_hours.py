"""GPU-hours of each row of the paper's tables, from the multiply-adds of its network; written into docs/REPRODUCE.md."""

import sys
from pathlib import Path

from mule.core.config import systems_by_row
from mule.training.choosing import load_for_training
from mule.training.row_costs import PEAK_TERAFLOPS, USED_SHARE, passes_per_clip, row_cost, training_hours

PAGE = Path(__file__).resolve().parents[1] / "docs" / "REPRODUCE.md"
BEGIN, END = "<!-- gpu-hours: begin -->", "<!-- gpu-hours: end -->"
NUM_CLIPS = {"ava": 235 * 897 - 161, "charades": 7985}
"""Training clips of an epoch at most: AVA's key frames less the excluded ones, Charades' videos."""


def table_of(experiment):
    lines = [
        f"| row of `{experiment}` | parameters | multiply-adds of a training clip | epochs | forward passes a clip | "
        + " | ".join(PEAK_TERAFLOPS)
        + " |",
        "|---|--:|--:|--:|--:|" + "--:|" * len(PEAK_TERAFLOPS),
    ]
    for name in systems_by_row(Path(experiment)):
        row = load_for_training(Path(experiment), [], name)
        side = row.view.crop_px or (row.view.short_sides_px or (256, 256))[0]
        cols = side if row.view.crop_px else side * 4 // 3
        cost = row_cost(name, row, rows_px=side, cols_px=cols)
        hours = [
            training_hours(row, cost, num_clips=NUM_CLIPS[experiment], gpu=gpu) for gpu in PEAK_TERAFLOPS
        ]
        size = f"{cost.input_size[0]} × {side} × {cols}"
        lines.append(
            f"| `{name}` | {cost.num_parameters / 1e6:.1f} M | {cost.num_multiply_adds / 1e9:.0f} G ({size}) | "
            f"{row.training.epochs} | {passes_per_clip(row)} | "
            + " | ".join(f"{each:.1f}" for each in hours)
            + " |"
        )
    return "\n".join(lines)


def main():
    text = (
        f"Hours of one GPU that computes at {100 * USED_SHARE:g} % of its peak in half precision ("
        + ", ".join(f"{name} {peak:g}" for name, peak in PEAK_TERAFLOPS.items())
        + " Tflop/s). A clip holds four actors and five objects; an epoch has at most "
        + " and ".join(f"{num:,} clips of {name}" for name, num in NUM_CLIPS.items())
        + ", fewer with `drop`. A gradient counts as two more forward passes. Loading, validation and evaluation are not"
        " included.\n\n" + "\n\n".join(map(table_of, NUM_CLIPS))
    )
    print(text)
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
