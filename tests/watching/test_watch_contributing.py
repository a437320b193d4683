"""Who contributed most, on a made-up network whose answer is known."""

import torch

from mule.core.records import Evidence
from mule.model import SceneBoxes
from mule.watching.engine.recognising import absences_in, log_odds, most_contributing, without


def boxes(actors, objects):
    """Actors and objects by weight: the width of their boxes."""

    def wide(weights):
        return torch.tensor([[0.0, 0.0, float(weight), 1.0] for weight in weights]).reshape(-1, 4)

    zeros = torch.zeros
    return SceneBoxes(
        wide(actors),
        zeros(len(actors), dtype=torch.int64),
        wide(objects),
        zeros(len(objects), dtype=torch.int64),
    )


def by_width(scene):
    """Log-odds of action 1 are the widths of all objects and other actors in the clip; of action 0 always −9."""
    width = scene.actors_xyxy_px[:, 2]
    total = torch.zeros(len(width))
    for row, clip in enumerate(scene.actor_clip_index.tolist()):
        others = width[scene.actor_clip_index == clip].sum() - width[row]
        total[row] = others + scene.objects_xyxy_px[scene.object_clip_index == clip, 2].sum()
    outputs = torch.stack([torch.full_like(total, -9.0), total], dim=1)
    return tied(outputs)


def tied(outputs):
    return Evidence(outputs.exp(), (-outputs).exp())


def found(actors, objects):
    scene = boxes(actors, objects)
    left_out = absences_in(scene)
    if not left_out:
        return [None] * len(actors)
    return most_contributing(by_width(scene), by_width(without(scene, left_out)), left_out)


def test_nobody_contributes_to_nobody():
    assert found([], []) == []
    assert found([], [1.0]) == []


def test_one_actor_alone_owes_nothing_to_anybody():
    assert found([1.0], []) == [None]


def test_tied_evidence_is_its_own_log_odds():
    outputs = torch.tensor([[-2.0, 0.0, 3.0]])
    torch.testing.assert_close(log_odds(tied(outputs)), outputs)


def test_the_widest_object_contributed_most_by_its_share_of_all_changes():
    shares = [
        each and (each.is_actor, each.index, round(each.share, 4)) for each in found([1.0], [0.5, 2.0, 1.5])
    ]
    assert shares == [(False, 1, 0.5)]


def test_another_actor_may_be_what_matters_but_never_oneself():
    shares = [
        each and (each.is_actor, each.index, round(each.share, 4)) for each in found([3.0, 0.25], [1.0])
    ]
    assert shares == [(False, 0, round(1.0 / 1.25, 4)), (True, 0, round(3.0 / 4.0, 4))]


def test_where_nothing_changes_nobody_contributed():
    scene = boxes([1.0, 1.0], [1.0])

    def deaf(scene):
        return tied(torch.ones(len(scene.actor_clip_index), 2))

    left_out = absences_in(scene)
    assert len(left_out) == 3
    assert most_contributing(deaf(scene), deaf(without(scene, left_out)), left_out) == [None, None]
