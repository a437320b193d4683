"""A default that stands in a room and in the experiment file is the same in both."""

import inspect
from dataclasses import MISSING, fields, is_dataclass

import pytest

from mule.core.settings import (
    DualSettings,
    LoadingSettings,
    ObjectiveSettings,
    ScheduleSettings,
    ViewSettings,
)
from mule.data.batches.loading import ReadAhead, SkipRule
from mule.data.batches.samples import TrainingView, WholeView
from mule.objective.primal_dual import Constraint, PrimalDual
from mule.training.step import Schedule

OTHER_NAMES = {
    "num_workers": "workers",
    "max_share": "unreadable_share",
    "short_side_px": "val_short_side_px",
}
"""What the experiment file calls a parameter of a room, where it differs."""


def defaults_of(thing):
    """The defaults of a room's record or constructor, by the names of the experiment file."""
    if is_dataclass(thing):
        found = {field.name: field.default for field in fields(thing) if field.default is not MISSING}
    else:
        parameters = inspect.signature(thing).parameters.values()
        found = {each.name: each.default for each in parameters if each.default is not each.empty}
    return {OTHER_NAMES.get(name, name): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("settings", "room", "shared"),
    [
        (DualSettings, Constraint, {"tolerance", "step_size", "damping", "initial_multiplier"}),
        (ObjectiveSettings, PrimalDual, {"inner_steps", "measures_with"}),
        (
            ViewSettings,
            TrainingView,
            {
                "short_sides_px",
                "crop_px",
                "flip_probability",
                "box_jitter",
                "brightness",
                "contrast",
                "saturation",
            },
        ),
        (ViewSettings, WholeView, {"val_short_side_px"}),
        (ScheduleSettings, Schedule, {"kind", "milestones", "factor", "final_share"}),
        (LoadingSettings, ReadAhead, {"workers", "prefetch_batches"}),
        (LoadingSettings, SkipRule, {"unreadable_share"}),
    ],
)
def test_rooms_and_the_experiment_file_share_their_defaults(settings, room, shared):
    in_file = {name: field.default for name, field in settings.model_fields.items()}
    in_room = defaults_of(room)
    assert in_file.keys() & in_room.keys() - {"warmup_lr"} == shared
    assert {name: in_file[name] for name in shared} == {name: in_room[name] for name in shared}
