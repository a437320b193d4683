"""How many people would be flagged, by action, and which score decides."""

import numpy as np
import pytest
from made_films import settings_on, two_in_each_film, write_films
from tiny_rows import tiny_experiment

from mule.data.split.splits import ClassSets
from mule.inference.flagged import (
    actions_left_out,
    deciding_score,
    flagged_by_action,
    novel_actions,
)
from mule.inference.results import ScoreResult, SideResult
from mule.inference.score_rules import SCORE_NAMES
from mule.inference.sides import ActorTruth
from mule.novelty.combining import DECIDING_SCORE


def test_people_are_counted_under_each_action_they_do_known_ones_apart_from_novel_ones():
    truth = ActorTruth(
        classes=("walk", "hug", "kick"),
        labels=np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], dtype=bool),
        is_novel=np.array([False, True, True, True, False]),
        boxes_xyxy_unit=np.zeros((5, 4)),
        actor_ids=("",) * 5,
    )
    novelty = np.array([0.9, 0.9, 0.2, 0.5, 0.9])
    counts = flagged_by_action(truth, novelty, 0.4, taught=("walk",))
    assert counts == ({"walk": (2, 2)}, {"hug": (1, 2), "kick": (1, 2)})
    at_the_threshold = flagged_by_action(truth, novelty, 0.5, taught=("walk",))
    assert at_the_threshold.novel["kick"] == (0, 2)
    more = flagged_by_action(truth, novelty, 0.4, taught=("walk", "hug"))
    assert set(more.novel) == {"kick"}
    assert more.known == {"walk": (2, 2), "hug": (1, 1)}  # of hugging people only the known one counts


def result(kind, names, num_novel=3):
    score = ScoreResult.model_construct()
    return SideResult.model_construct(kind=kind, scores=dict.fromkeys(names, score), num_novel=num_novel)


@pytest.mark.parametrize(
    ("kind", "score"),
    [
        ("tied", DECIDING_SCORE),
        ("read", DECIDING_SCORE),
        ("independent", "PE of log"),
        ("dirichlet", "PE of log"),
    ],
)
def test_the_score_that_decides_is_that_of_watching(kind, score):
    judged = result(kind, SCORE_NAMES)
    assert deciding_score(judged) == score
    without = [name for name in SCORE_NAMES if name != score]
    assert deciding_score(result(kind, without)) is None


def test_novel_actions_kept_for_choosing_are_named_where_others_are_reported(root, tmp_path):
    table = two_in_each_film()
    write_films(tmp_path, table, classes=ClassSets(("walk",), ("run",), ("fly",), ()))
    experiment = tiny_experiment(tmp_path, data=settings_on(tmp_path))
    assert actions_left_out(experiment) == ()  # nothing else could be reported
    write_films(tmp_path, table, classes=ClassSets((), ("walk",), ("fly",), ("run",)))
    assert actions_left_out(experiment) == ("fly",)
    assert novel_actions(experiment) == ("run",)  # each novel action is in one of the two
    assert actions_left_out(tiny_experiment(root)) == ()
