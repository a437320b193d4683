"""Watch a rendered video with the model `stage`: who does what, and who does something it was never taught.

`make demo` falls back to it where no weights can be fetched: it needs no network and no other data. The known actions are the fourteen of Stage's split A; the other seven are
novel: no part of the package was trained on them.
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

import mule
from examples.builtin_scores import metrics, p_value_of, takes, watched
from examples.builtin_takes import Cast, TrueActor, Truth, matched, mixed_take, write_take
from mule.watching.engine.bundle import STAGE, Bundle, read_bundle
from mule.watching.moments import Moment, SeenActor

FOLDER = Path("runs/rendered")
CAST, TAKE = Cast(seed=20, num_known=3, num_novel=1, seconds=20.0), 20
"""Among seeds 20 to 43, the take in which actors hide each other least; the numbers below come from other takes."""
SIZE = (480, 640)
TEST_SEED, NUM_TEST, TEST_SECONDS = 500, 6, 12.0


@dataclass
class Followed:
    """One actor: its judgement at each look, and the truth."""

    seen: list[tuple[float, SeenActor]] = field(default_factory=list)
    true: list[TrueActor] = field(default_factory=list)

    @property
    def is_flagged(self) -> bool:
        """Whether it was novel at some key time."""
        return any(actor.is_novel for _, actor in self.seen)


def main() -> None:
    """Render a scene, watch it, print the result, measure on more scenes."""
    console = Console(width=max(Console().width, 112))
    started_at = time.perf_counter()
    torch.set_num_threads(1)  # decoding and detecting have threads of their own
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    bundle = read_bundle(Path(STAGE))
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
        "[bold]mule watch DIR/videos --model stage[/bold]",
        highlight=False,
    )


def watch(bundle: Bundle, video: Path) -> list[Moment]:
    """Watch the video; report, annotated video and summary go into the folder."""
    return list(mule.watch(video, model=bundle, out=FOLDER / "watched"))


def followed(moments: Iterable[Moment], truth: Truth) -> dict[int, Followed]:
    """Collect the judgements of every track, by its number."""
    by_track: dict[int, Followed] = defaultdict(Followed)
    for moment in moments:
        for actor in moment.actors:
            by_track[actor.track_id].seen.append((moment.key_time_s, actor))
        for actor, true in matched(moment, truth):
            by_track[actor.track_id].true.append(true)
    return dict(sorted(by_track.items()))


def who_did_what(actors: dict[int, Followed], bundle: Bundle) -> Table:
    """A row for each actor: cyan is known, yellow is novel."""
    table = Table(title="Who did what, and who did something never taught", show_lines=True)
    for name in ("actor", "seen", "probable actions (belief)", "known actors this strange"):
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
    table.caption = f"{bundle.usual.threshold('known-95').meaning} at each look; evidence adds up over the looks at an actor"
    return table


def believed(seen: Sequence[tuple[float, SeenActor]]) -> str:
    """The actions reported at most key times, with the mean belief in each."""
    beliefs: dict[str, list[float]] = defaultdict(list)
    for _, actor in seen:
        for opinion in actor.so_far.actions:
            beliefs[opinion.action].append(opinion.belief)
    longest = sorted(beliefs.items(), key=lambda each: -len(each[1]))[:3]
    lines = [f"{name} ({sum(each) / len(each):.2f}) at {len(each)} of {len(seen)}" for name, each in longest]
    return "\n".join(lines) or "nothing"


def strangest(seen: Sequence[tuple[float, SeenActor]]) -> str:
    """The smallest p-value along the track, and when."""
    time_s, actor = min(seen, key=lambda each: p_value_of(each[1].so_far))
    return f"{100 * p_value_of(actor.so_far):.2g} %  (at {time_s:.0f} s)"


def really(true: Sequence[TrueActor]) -> str:
    """What the actor did most, from the file of the scene."""
    names = Counter(name for actor in true for name in actor.actions)
    actions = ", ".join(name for name, _ in names.most_common(4)) or "nobody: not a person"
    is_novel = sum(actor.is_novel for actor in true) > len(true) / 2
    return f"[yellow]novel:[/yellow] {actions}" if is_novel else actions


def measured(here: dict[str, float], card: dict[str, Any]) -> Table:
    """The numbers measured now beside those in the model's card."""
    table = Table(title="How good is it? Measured on rendered scenes with known and novel actors")
    table.add_column("")
    table.add_column(f"{NUM_TEST} scenes, now", justify="right")
    table.add_column("when it was made", justify="right")
    rows = (
        ("mean average precision of known actions, one look", "closed_mean_ap"),
        ("chance that a novel actor ranks above a known one (AUROC), one look", "auroc_one_look"),
        ("the same, all looks so far", "auroc_so_far"),
        ("known actors flagged (5 % promised)", "known_flagged"),
        ("novel actors flagged", "novel_flagged"),
        ("people found by the detector", "person_recall"),
        ("looks at known actors", "num_known_looks"),
        ("looks at novel actors", "num_novel_looks"),
    )
    for title, name in rows:
        table.add_row(title, *(shown(numbers, name) for numbers in (here, card)))
    return table


def shown(numbers: dict[str, Any], name: str) -> str:
    """Format a share in per cent, or a count."""
    value = numbers.get(name)
    if value is None:
        return "–"
    return f"{value:.0f}" if name.startswith("num_") else f"{100 * value:.1f} %"


if __name__ == "__main__":
    main()
