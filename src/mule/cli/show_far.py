"""`mule evaluate far`, shown."""

from collections.abc import Sequence
from pathlib import Path

from mule.cli import remember
from mule.cli.show_compare import experiment_of, noted, side_results
from mule.comparison.far import against_far
from mule.comparison.judging import Judging, judged, yardstick_of
from mule.comparison.output_files import OutputsOf
from mule.comparison.remembering import reading_of
from mule.comparison.score_rules import SCORE_NAMES, score_rules
from mule.comparison.sides import TRAIN, VAL, sides_under_test


def far(
    run_dir: Path,
    actors: Path,
    videos: Path,
    *,
    settings: Sequence[str],
    scores: Sequence[str],
    resamples: int,
) -> None:
    """Judges by every score and prints; nothing is kept but the maps of a frozen backbone."""
    experiment = experiment_of(run_dir, settings)
    judging = Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples)
    rules = score_rules(judging.scores)
    others = remember.outputs_in_table(run_dir, actors, videos, settings=settings)
    source, side = OutputsOf(run_dir, experiment), sides_under_test(experiment)[0]
    train, val, test = (source.on(each, noted=noted) for each in (TRAIN, VAL, side))
    model = remember.fingerprint(run_dir)
    read = reading_of(experiment.system, train, val, model=model)
    name = f"{side} against {actors.name}"
    facts = {"key": "", "system": experiment.system, "side": name, "side_digest": "", "weights_sha256": model}
    yardstick = yardstick_of(rules, train, read(val))
    result, _ = judged(read(against_far(test, others)), yardstick, judging=judging, facts=facts)
    side_results({name: result})
