"""Measure teaching: teach every novel action of a run's test side from a few of its actors, and test on the others.

    python -m studies.teaching RUN_DIR --out studies/pages/TEACHING.md

test side ─┬─ some actors of one novel action ─▶ teach ─▶ memory, read-out, calibration, as `mule watch` has them
           ╰─ all clips without these ─▶ recognised? still flagged? anything forgotten?
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Bool, Float
from torch import Tensor

from mule.api.bundling import held_out_outputs
from mule.api.memories import model_fingerprint
from mule.core.errors import RangeError
from mule.core.files import write_file
from mule.evaluation.formats import escaped_markdown
from mule.evaluation.mean_ap import mean_over_classes, multilabel_average_precision
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import remembered_of, seen_actors
from mule.inference.running import OutputsOf
from mule.inference.sides import TRAIN, VAL, require_sides, sides_under_test
from mule.memory.taught import Remembered
from mule.memory.teaching import teach_action
from mule.novelty.calibration import promised_threshold
from mule.training.build import load_run
from mule.training.monitor import probability_order
from mule.training.run_folder import experiment_of
from mule.watching.engine.bundle import usual_novelty
from mule.watching.engine.judging import Judge

ALARM_RATE = 0.05
Chosen = Bool[np.ndarray, " actors"]


@dataclass(frozen=True)
class Taught:
    """What teaching one action changed, measured on clips without exemplars."""

    average_precision: float
    """Of the taught action, over all tested actors."""
    flagged_before: float
    """Share of the actors doing it that are flagged as novel."""
    flagged_after: float
    others_before: float
    """The same for novel actors that do not do it; they stay novel."""
    others_after: float
    known_flagged_before: float
    known_flagged_after: float
    known_map_before: float
    """Closed-set mAP of known actors, by network and memory together."""
    known_map_after: float


@dataclass(frozen=True)
class TeachingPlan:
    """Which run to measure, and how."""

    run_dir: Path
    side: str | None
    """None is the first test side."""
    num_examples: int
    num_draws: int
    test_clips: int | None = None
    """Clips of a test side of Stage; None takes the benchmark's number."""


def mean_of(found: Sequence[Taught]) -> Taught:
    """Return the mean of every number."""
    return Taught(
        **{each.name: float(np.mean([getattr(one, each.name) for one in found])) for each in fields(Taught)}
    )


class TeachingTest:
    """A run, its memory, and the actors it is tested on."""

    def __init__(self, plan: TeachingPlan, settings: Sequence[str]) -> None:
        """Run the network on the sides that are needed, unless their outputs are cached."""
        experiment = experiment_of(plan.run_dir, settings)
        self.side = plan.side or sides_under_test(experiment)[0]
        require_sides(experiment, [self.side])
        source = OutputsOf(plan.run_dir, experiment, test_clips=plan.test_clips)
        train, self._val, self.test = (source.on(each, noted=note) for each in (TRAIN, VAL, self.side))
        self._pair_evidence, self._classes = load_run(plan.run_dir).pair_evidence, train.classes
        self._untaught = remembered_of(train, self._val, model=model_fingerprint(plan.run_dir))
        self._before = self._seen(self._untaught)

    def novel_actions(self, *, num_examples: int) -> list[str]:
        """Return the novel actions with enough actors to teach from some and test on others."""
        truth = self.test.truth
        counts = {
            name: int((truth.labels[:, at] & truth.is_novel).sum())
            for at, name in enumerate(truth.classes)
            if name not in self._classes
        }
        found = [name for name, count in counts.items() if count >= 2 * num_examples]
        if not found:
            raise RangeError(
                f"the {self.side} side must have a novel action that {2 * num_examples} actors do; it has "
                f"{', '.join(f'{name} ({count})' for name, count in counts.items()) or 'none'}. Use fewer examples."
            )
        return found

    def taught(self, action: str, *, num_examples: int, seed: int) -> Taught:
        """Teach an action from some of its actors, drawn by the seed, and measure what changes."""
        truth, column = self.test.truth, self.test.truth.classes.index(action)
        does = truth.labels[:, column] & truth.is_novel
        drawn = np.random.default_rng(seed).permutation(np.flatnonzero(does))[:num_examples]
        exemplars = seen_actors(self.test).at(torch.from_numpy(drawn))
        content = teach_action(self._untaught, exemplars, class_name=action, seed=seed)
        is_unseen = ~np.isin(self.test.clip_index, self.test.clip_index[drawn])
        before, after = self._before, self._seen(content)
        order = after.order[is_unseen, after.classes.index(action)]
        shares = {
            name: [float(each.is_flagged[chosen & is_unseen].mean()) for each in (before, after)]
            for name, chosen in (
                ("flagged", does),
                ("others", truth.is_novel & ~does),
                ("known_flagged", ~truth.is_novel),
            )
        }
        known = [self._known_map(each, ~truth.is_novel & is_unseen) for each in (before, after)]
        return Taught(
            average_precision=float(
                multilabel_average_precision(order[:, None], truth.labels[is_unseen, column][:, None])[0]
            ),
            **{
                f"{name}_{when}": value
                for name, both in {**shares, "known_map": known}.items()
                for when, value in zip(("before", "after"), both, strict=True)
            },
        )

    def _known_map(self, seen: "_Seen", chosen: Chosen) -> float:
        columns = [seen.classes.index(name) for name in self._classes]
        return mean_over_classes(
            multilabel_average_precision(seen.order[chosen][:, columns], self.test.labels[chosen])
        )

    def _seen(self, content: Remembered) -> "_Seen":
        judge = Judge(self._pair_evidence, self._classes, content, tags=self.test.tags)
        usual = usual_novelty(judge, held_out_outputs(self._val))
        found = judge(self.test.outputs.float(), self.test.remembered)
        threshold = promised_threshold(usual.combined.together.held_out, alarm_rate=ALARM_RATE)
        is_flagged = threshold.decide(usual.statistic(found.ranks)).is_novel
        order: Tensor = probability_order(found.together).double()
        return _Seen(judge.classes, order.numpy(), is_flagged.numpy())


@dataclass(frozen=True)
class _Seen:
    """What the model says of every actor of the test side."""

    classes: tuple[str, ...]
    order: Float[np.ndarray, "actors classes"]
    is_flagged: Chosen


def report(plan: TeachingPlan, settings: Sequence[str], out: Path) -> str:
    """Teach every novel action, draw by draw, and write the results as a page."""
    test = TeachingTest(plan, settings)
    found: dict[str, Taught] = {}
    for action in test.novel_actions(num_examples=plan.num_examples):
        draws = [
            test.taught(action, num_examples=plan.num_examples, seed=seed) for seed in range(plan.num_draws)
        ]
        found[action] = mean_of(draws)
        note(f"{action}: AP {found[action].average_precision:.3f}")
    text = "\n".join(_page(plan, test.side, test.test, found)) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, text)
    return text


def _page(plan: TeachingPlan, side: str, test: SideOutputs, found: dict[str, Taught]) -> Iterator[str]:
    whole = mean_of(list(found.values()))
    yield f"# Actions taught from {plan.num_examples} examples"
    yield ""
    yield (
        f"Run `{plan.run_dir.name}`, {side} side, {test.num_actors} actors. Each novel action is taught by itself "
        f"from {plan.num_examples} of its actors, {plan.num_draws} times with different ones. Numbers are means over these "
        "draws, measured on clips without exemplars. Flagged: above the threshold that promises to flag at most "
        f"{ALARM_RATE:.0%} of known actors. Nothing is retrained, and no novel actor sets a threshold."
    )
    yield ""
    yield "| action | AP | flagged before | after | other novel flagged before | after | known flagged before | after | known mAP before | after |"
    yield "| --- | " + "--: | " * (len(fields(Taught)) - 1) + "--: |"
    for name, each in [*found.items(), ("**mean**", whole)]:
        label = name if name.startswith("**") else escaped_markdown(name)
        yield f"| {label} | " + " | ".join(f"{getattr(each, f.name):.3f}" for f in fields(Taught)) + " |"
    yield ""
    yield from _against_goal(whole)


def _against_goal(whole: Taught) -> Iterator[str]:
    """Say which goals of the benchmark are met."""
    halved = whole.flagged_before > 0 and whole.flagged_after <= whole.flagged_before / 2
    map_change = whole.known_map_after - whole.known_map_before
    flag_change = whole.known_flagged_after - whole.known_flagged_before
    for goal, value, is_met in (
        ("AP at least 0.60", f"{whole.average_precision:.3f}", whole.average_precision >= 0.6),
        ("flagged share halved", f"{whole.flagged_before:.3f} to {whole.flagged_after:.3f}", halved),
        ("known mAP within 0.01", f"{map_change:+.4f}", abs(map_change) <= 0.01),
        ("known flag rate within 0.01", f"{flag_change:+.4f}", abs(flag_change) <= 0.01),
    ):
        yield f"- {goal}: {value}, {'met' if is_met else 'not met'}"


def note(sentence: str) -> None:
    """Print a sentence that is not part of the page."""
    typer.echo(sentence, err=True)


def main(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.md", help="Page to write; by default teaching.md in the run's folder."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Examples to teach each action from.")] = 10,
    draws: Annotated[int, typer.Option(min=1, help="Repetitions, each with other examples.")] = 5,
    side: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Test side; by default the first one.")
    ] = None,
    test_clips: Annotated[
        int | None, typer.Option(min=1, help="Clips of a test side of Stage; by default the benchmark's 400.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Where the data lies now. Repeatable."),
    ] = None,
) -> None:
    """Measure teaching: teach every novel action of a test side by itself, and write what changed."""
    plan = TeachingPlan(run_dir, side, examples, draws, test_clips)
    typer.echo(report(plan, settings or [], out or run_dir / "teaching.md"))


if __name__ == "__main__":
    typer.run(main)
