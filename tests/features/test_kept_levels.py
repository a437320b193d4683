"""What a frozen I3D keeps: two levels side by side, standardised by the training clips, at the experiment's own frames."""

import pytest
import torch
import torch.nn.functional as F

from mule.core.config import ConfigError, experiment_from
from mule.core.errors import RangeError
from mule.core.settings import TableData
from mule.features.backbones.i3d import I3D
from mule.features.weights.cards import find_card
from mule.model import KeptMaps
from mule.systems.design import SIZES
from mule.training.maps import as_seen


@pytest.fixture(scope="module")
def both():
    torch.manual_seed(0)
    return I3D(also_mixed_4f=True).eval()


@pytest.mark.parametrize("size", [(64, 96), (70, 100)])
@torch.no_grad()
def test_mixed_4f_stands_beside_mixed_5c_cell_by_cell(both, size):
    clips = torch.rand(1, 3, 8, *size, generator=torch.Generator().manual_seed(1))
    found = both(clips)
    upper, finer = I3D().eval(), I3D("mixed_4f").eval()
    upper.load_state_dict(both.state_dict())
    finer.load_state_dict({k: v for k, v in both.state_dict().items() if "mixed_5" not in k})
    assert both.channels == sum(each.shape[1] for each in found.maps) == 1024 + 832
    assert found.maps[0].shape[3:] == found.maps[1].shape[3:]
    torch.testing.assert_close(found.maps[0], upper(clips).maps[0])
    (plain,) = finer(clips).maps
    cell = plain[0, :, :, 2:4, 0:2].mean(dim=(2, 3))
    torch.testing.assert_close(found.maps[1][0, :, :, 1, 0], cell)
    last = F.pad(plain, (0, plain.shape[4] % 2, 0, plain.shape[3] % 2), value=float("nan"))[..., -2:, -2:]
    torch.testing.assert_close(found.maps[1][..., -1, -1], last.nanmean(dim=(3, 4)))


def test_mixed_4f_cannot_stand_beside_itself():
    with pytest.raises(RangeError, match="also_mixed_4f needs the endpoint 'mixed_5c'"):
        I3D("mixed_4f", also_mixed_4f=True)


def test_channels_are_centred_and_scaled_by_the_training_clips_and_a_constant_one_only_centred():
    kept = KeptMaps(32, 3).eval()
    clips = torch.randn(4, 3, 1, 5, 6, generator=torch.Generator().manual_seed(2)) * 3 + 7
    clips[:, 2] = 5.0
    kept.standardise(clips.mean(dim=(0, 2, 3, 4)), clips.std(dim=(0, 2, 3, 4), correction=0))
    (maps,) = kept(clips).maps
    torch.testing.assert_close(maps.mean(dim=(0, 2, 3, 4)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        maps.std(dim=(0, 2, 3, 4), correction=0), torch.tensor([1.0, 1, 0]), atol=1e-5, rtol=0
    )
    again = KeptMaps(32, 3).eval()
    again.load_state_dict(kept.state_dict())
    torch.testing.assert_close(again(clips).maps[0], maps)


def test_whole_channels_are_left_out_in_training_alone():
    kept = KeptMaps(32, 400, dropout=0.3)
    torch.manual_seed(3)
    (maps,) = kept(torch.ones(1, 400, 1, 2, 2)).maps
    is_out = (maps == 0).flatten(2).all(dim=2)
    assert ((maps == 0).flatten(2).any(dim=2) == is_out).all()
    assert 0.2 < float(is_out.float().mean()) < 0.4
    assert (kept.eval()(torch.ones(1, 400, 1, 2, 2)).maps[0] == 1).all()


def test_small_is_tiny_with_dropout():
    tiny, small = SIZES["tiny"](7, 3), SIZES["small"](7, 3)
    assert (tiny.relations.dropout, small.relations.dropout) == (0.0, 0.5)
    assert small.relations.width == tiny.relations.width


def test_a_frozen_backbone_sees_the_frames_and_has_the_options_of_the_experiment():
    content = {
        "system": "mule",
        "data": {"kind": "table", "num_known": 2, "num_frames": 16, "stride_frames": 3},
        "backbone": {"name": "i3d_rgb_kinetics400", "frozen": True, "options": {"also_mixed_4f": True}},
        "optimizer": {"lr": 1.0},
        "training": {"epochs": 1},
    }
    experiment = experiment_from(content, source="here")
    assert isinstance(experiment.data, TableData)
    seen = as_seen(find_card("i3d_rgb_kinetics400"), experiment, experiment.data)
    assert (seen.clip.num_frames, seen.clip.stride_frames, seen.options) == (16, 3, {"also_mixed_4f": True})
    with pytest.raises(ConfigError, match="runtime"):
        experiment_from({**content, "backbone": {"runtime": "onnx"}}, source="here")
