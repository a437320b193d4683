"""Decisions of the built-in model on one short take, recorded when it was made, so that a test notices a change."""

import json
from pathlib import Path
from typing import Any

from examples.builtin_takes import Cast, mixed_take, write_take
from mule.core.files import write_file
from mule.watching.engine.bundle import STAGE, read_bundle
from mule.watching.engine.watch import WatchSettings, open_watch

DECISIONS = Path(__file__).parent.parent / "tests" / "watching" / "builtin_decisions.json"
SHORT = Cast(seed=600, num_known=2, num_novel=1, seconds=4.0)


def write_short_take(path: Path) -> None:
    """Render the take."""
    write_take(mixed_take(SHORT), path, (120, 160))


def decisions_of(video: Path) -> list[dict[str, Any]]:
    """List every actor at every key time: box, probable actions, p-value and decision."""
    bundle = read_bundle(Path(STAGE))
    return [
        {
            "key_time_s": moment.key_time_s,
            "track_id": actor.track_id,
            "box_xyxy_unit": [round(side, 3) for side in actor.box_xyxy_unit],
            "actions": [opinion.action for opinion in actor.so_far.actions],
            "p_value": round(actor.so_far.novelty.p_value or 0.0, 4),
            "decision": actor.decision,
        }
        for moment in open_watch(video, bundle, settings=WatchSettings(explains=False))
        for actor in moment.actors
    ]


def record(folder: Path) -> None:
    """Watch the take, which is kept in `folder`, and write the decisions to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_short_take(folder / "short.mp4")
    lines = ",\n  ".join(json.dumps(each) for each in decisions_of(folder / "short.mp4"))
    write_file(DECISIONS, f"[\n  {lines}\n]\n")
