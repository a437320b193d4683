"""HSIC compared with its matrix formula, and m primal-dual inner steps with m plain steps."""

import torch
from torch import Tensor, nn

from bench.timing import Comparison, take_turns
from mule.evidence.head import EvidenceHead
from mule.objective.beta_loss import beta_loss
from mule.objective.hsic import rbf_kernel, static_bias, unbiased_hsic
from mule.objective.primal_dual import Constraint, Objective, PrimalDual


def comparisons() -> list[Comparison]:
    return [*[_hsic(n) for n in (256, 1024, 4096)], *_primal_dual()]


def _hsic(n: int) -> Comparison:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 40, generator=generator, requires_grad=True)
    y = torch.randn(n, 128, generator=generator)
    sigma_x, sigma_y = 40**0.5, 128**0.5

    def ours():
        unbiased_hsic(rbf_kernel(x, bandwidth=sigma_x), rbf_kernel(y, bandwidth=sigma_y)).backward()

    def matrices():
        """Song's formula by matrix products of the kernels without their diagonals."""
        off_diagonal, ones = 1 - torch.eye(n), torch.ones(n)
        k = torch.exp(-torch.cdist(x, x).square() / (2 * sigma_x**2)) * off_diagonal
        m = torch.exp(-torch.cdist(y, y).square() / (2 * sigma_y**2)) * off_diagonal
        product = k @ m
        value = torch.trace(product) + k.sum() * m.sum() / ((n - 1) * (n - 2))
        ((value - 2 * ones @ product @ ones / (n - 2)) / (n * (n - 3))).backward()

    times = take_turns({"ours": ours, "matrices": matrices})
    return Comparison(
        f"Unbiased HSIC, forward + backward, n = {n}", "matrix products", times["ours"], times["matrices"]
    )


class _Network(nn.Module):
    """A few million parameters over a feature map, so that copying parameters is not free."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(),
        )  # fmt: skip
        self.head = EvidenceHead(256, 60)

    def forward(self, maps: Tensor) -> Tensor:
        return self.head.outputs(self.body(maps).mean(dim=(2, 3)))


def _primal_dual() -> list[Comparison]:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(24, 256, 12, 16, generator=generator)
    context = torch.randn(24, 32, generator=generator)
    targets = (torch.rand(24, 60, generator=generator) < 0.1).float()
    network = _Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    clips = torch.arange(24)

    def objective() -> Objective:
        outputs = network(maps)
        loss = beta_loss(network.head.evidence_from(outputs), targets)
        return Objective(loss, {"static_bias": static_bias(outputs, context, clips)})

    def plain_step():
        value = objective()
        bias = value.constraints["static_bias"]
        assert bias is not None
        optimizer.zero_grad(set_to_none=True)
        (value.loss + bias).backward()
        optimizer.step()

    def forward_only():
        with torch.no_grad():
            objective()

    rows = []
    for m in range(6):
        primal_dual = PrimalDual(network, optimizer, {"static_bias": Constraint()}, inner_steps=m)
        times = take_turns(
            {
                "ours": lambda pd=primal_dual: pd.step(objective),
                "step": plain_step,
                "forward": forward_only,
            },
            seconds=6.0,
        )
        budget = max(m, 1) * times["step"] + (times["forward"] if m else 0.0)
        rows.append(
            Comparison(
                f"PrimalDual, m = {m}",
                f"{max(m, 1)} plain step{'s' * (m > 1)}" + (" + 1 forward" if m else ""),
                times["ours"],
                budget,
                goal="at least 0.87 (at most 1.15 times the cost)",
            )
        )
    return rows
