import pytest
import torch
from jaxtyping import TypeCheckError

from mule.core.errors import ShapeError
from mule.features.pooling import FeatureMaps


def test_channels_of_all_pathways_add_up():
    assert FeatureMaps(maps=(torch.zeros(1, 4, 2, 3, 3), torch.zeros(1, 1, 8, 3, 3)), stride=16).channels == 5


def test_pathways_on_different_grids_are_refused():
    with pytest.raises((ShapeError, TypeCheckError)):  # under pytest the annotation speaks first
        FeatureMaps(maps=(torch.zeros(1, 4, 2, 3, 3), torch.zeros(1, 1, 8, 3, 4)), stride=16)
