import torch
from scenes import boxes_of, generator, maps_of

from mule.features.pooling import RoiSampling
from mule.rivals.networks.afac import AfacHead, AfacModel


def test_each_action_is_judged_on_its_own_mixture_of_observations():
    torch.manual_seed(0)
    head = AfacHead(5, 3, width=4, num_observations=2).eval()
    cells = torch.randn(2, 7, 5, generator=generator())
    specific = head.activity_features(cells)
    for actor in range(2):
        observations = []
        for n in range(2):
            weight = torch.softmax(torch.stack([head.look.weight[n] @ cell for cell in cells[actor]]), dim=0)
            seen = [w * head.value(cell) for w, cell in zip(weight, cells[actor], strict=True)]
            observations.append(torch.stack(seen).sum(dim=0))
        features = []
        for c in range(3):
            weight = torch.softmax(torch.stack([head.query[c] @ o / 2 for o in observations]), dim=0)
            features.append(sum(w * o for w, o in zip(weight, observations, strict=True)))
        alone = torch.stack(features)
        related = head.correlation(alone[None], alone[None], alone[None])[0][0]
        torch.testing.assert_close(specific[actor], head.norm(alone + related))
    logits, mean = head(cells)
    expected = torch.stack([(specific[:, c] @ head.weight[c]) + head.bias[c] for c in range(3)], dim=1)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(mean, specific.mean(dim=1))


def test_the_order_of_cells_does_not_matter():
    torch.manual_seed(0)
    head = AfacHead(5, 3, width=4).eval()
    cells = torch.randn(2, 7, 5, generator=generator())
    torch.testing.assert_close(head(cells)[0], head(cells.flip(1))[0])


def test_nobody_gives_no_rows():
    model = AfacModel(10, 3, width=4, sampling=RoiSampling(bins=2))
    output = model([maps_of(2)], boxes_of([], []))
    assert output.outputs.shape == (0, 3)
    assert output.features.shape == (0, 4)
