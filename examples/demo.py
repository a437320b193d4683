"""Watches a rendered video with the built-in model: who does what, and who does something that was never taught.

`make demo` needs no network and no other data. Known actions are the fourteen of Stage's split A; the seven others
are novel: nothing in the package has ever seen them done.
"""

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from examples.builtin_scores import metrics, p_value_of, takes, watched
from examples.builtin_takes import Cast, TrueActor, Truth, matched, mixed_take, write_take
from mule.video.sources import video_source
from mule.watching.engine.bundle import BUILTIN, Bundle, read_bundle
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.moments import Moment, SeenActor
from mule.watching.outputs.results import recorded, write_outputs

FOLDER = Path("runs/demo")
CAST, TAKE = Cast(seed=20, num_known=3, num_novel=1, seconds=20.0), 20
"""Of the seeds 20 to 43 the take in which actors hide each other least; the numbers below it are of others."""
SIZE = (480, 640)
TEST_SEED, NUM_TEST, TEST_SECONDS = 500, 6, 12.0


@dataclass
class Followed:
    """What was said of one actor, look by look, and what is true of it."""

    seen: list[tuple[float, SeenActor]] = field(default_factory=list)
    true: list[TrueActor] = field(default_factory=list)

    @property
    def is_flagged(self) -> bool:
        """Whether it was called novel at some time."""
        return any(actor.is_novel for _, actor in self.seen)


def main() -> None:
    """Render, watch, tell, measure."""
    console = Console(width=max(Console().width, 112))
    started_at = time.perf_counter()
    torch.set_num_threads(1)  # decoding and detecting have threads of their own
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    bundle = read_bundle(Path(BUILTIN))
    video = FOLDER / "scene.mp4"
    with console.status(
        f"rendering {CAST.seconds:g} s of video with {CAST.num_known + CAST.num_novel} actors ..."
    ):
        truth = write_take(mixed_take(CAST, TAKE), video, SIZE)
    with console.status("watching it ..."):
        moments = watch(bundle, video)
    console.print(who_did_what(followed(moments, truth), bundle))
    with console.status(f"watching {NUM_TEST} more scenes to measure ..."):
        here = metrics(
            watched(
                bundle,
                takes(FOLDER / "test", TEST_SEED, range(NUM_TEST), is_novel=True, seconds=TEST_SECONDS),
            )
        )
    console.print(measured(here, dict(bundle.card.metrics)))
    console.print(
        f"\nvideo with boxes  {FOLDER / 'watched' / 'annotated.mp4'}"
        f"\nreport            {FOLDER / 'watched' / 'report.html'}   (open it in a browser)"
        f"\n{time.perf_counter() - started_at:.0f} s in all. On a rendered scene of your own: "
        "[bold]mule stage render DIR --seconds 12 --size 360x480[/bold], then "
        "[bold]mule watch DIR/videos --model builtin[/bold]",
        highlight=False,
    )


def watch(bundle: Bundle, video: Path) -> list[Moment]:
    """The moments of the video; page, video and summary are written beside them."""
    found = open_watch(video, bundle, settings=WatchSettings(every_s=bundle.card.every_s))
    moments = list(recorded(found, FOLDER / "watched"))
    write_outputs(FOLDER / "watched", video_source(video), thumbnails=bundle.thumbnails)
    return moments


def followed(moments: Iterable[Moment], truth: Truth) -> dict[int, Followed]:
    """What was said of every track, by its number."""
    found: dict[int, Followed] = defaultdict(Followed)
    for moment in moments:
        for actor in moment.actors:
            found[actor.track_id].seen.append((moment.key_time_s, actor))
        for actor, true in matched(moment, truth):
            found[actor.track_id].true.append(true)
    return dict(sorted(found.items()))


def who_did_what(actors: dict[int, Followed], bundle: Bundle) -> Table:
    """A row for each actor: cyan is known, yellow is novel."""
    table = Table(title="Who did what, and who did something never taught", show_lines=True)
    for name in ("actor", "seen", "is believed to do (belief)", "known actors so strange"):
        table.add_column(name)
    table.add_column("decision")
    table.add_column("really does")
    for number, actor in actors.items():
        colour, decision = ("yellow", "NOVEL") if actor.is_flagged else ("cyan", "known")
        flagged = sum(seen.is_novel for _, seen in actor.seen)
        table.add_row(
            f"#{number}",
            f"{actor.seen[0][0]:.0f}–{actor.seen[-1][0]:.0f} s",
            believed(actor.seen),
            strangest(actor.seen),
            f"[{colour}]{decision}[/{colour}]"
            + (f"\n{flagged} of {len(actor.seen)} looks" if flagged else ""),
            really(actor.true),
        )
    table.caption = f"{bundle.usual.threshold('known-95').meaning} at each look; evidence adds up along the looks at an actor"
    return table


def believed(seen: Sequence[tuple[float, SeenActor]]) -> str:
    """The actions held likely at the most key times, with the mean of the belief in them."""
    beliefs: dict[str, list[float]] = defaultdict(list)
    for _, actor in seen:
        for opinion in actor.so_far.actions:
            beliefs[opinion.action].append(opinion.belief)
    longest = sorted(beliefs.items(), key=lambda each: -len(each[1]))[:3]
    told = [f"{name} ({sum(held) / len(held):.2f}) at {len(held)} of {len(seen)}" for name, held in longest]
    return "\n".join(told) or "nothing"


def strangest(seen: Sequence[tuple[float, SeenActor]]) -> str:
    """The smallest p-value along the track, and when."""
    time_s, actor = min(seen, key=lambda each: p_value_of(each[1].so_far))
    return f"{100 * p_value_of(actor.so_far):.2g} %  (at {time_s:.0f} s)"


def really(true: Sequence[TrueActor]) -> str:
    """What the actor did most, from the scene's own file."""
    names = Counter(name for actor in true for name in actor.actions)
    told = ", ".join(name for name, _ in names.most_common(4)) or "nobody: not a person"
    is_novel = sum(actor.is_novel for actor in true) > len(true) / 2
    return f"[yellow]novel:[/yellow] {told}" if is_novel else told


def measured(here: dict[str, float], card: dict[str, Any]) -> Table:
    """What was measured now, beside what the card of the model says."""
    table = Table(title="How good is it? Rendered scenes with known and novel actors, watched like any video")
    table.add_column("")
    table.add_column(f"{NUM_TEST} scenes, now", justify="right")
    table.add_column("when it was made", justify="right")
    rows = (
        ("mean average precision of known actions, by one look", "closed_mean_ap"),
        ("a novel actor ranks above a known one, by one look (AUROC)", "auroc_one_look"),
        ("the same by all looks so far", "auroc_so_far"),
        ("known actors flagged (5 % promised)", "known_flagged"),
        ("novel actors flagged", "novel_flagged"),
        ("persons found", "person_recall"),
        ("looks at known actors", "num_known_looks"),
        ("looks at novel actors", "num_novel_looks"),
    )
    for title, name in rows:
        table.add_row(title, *(shown(numbers, name) for numbers in (here, card)))
    return table


def shown(numbers: dict[str, Any], name: str) -> str:
    """A share in per cent, a count as it is."""
    value = numbers.get(name)
    if value is None:
        return "–"
    return f"{value:.0f}" if name.startswith("num_") else f"{100 * value:.1f} %"


if __name__ == "__main__":
    main()
