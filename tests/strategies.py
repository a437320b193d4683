"""What these tests share: what Hypothesis draws, and calls that pass by the shape checker."""

import inspect

import torch
from hypothesis import strategies as st

from mule.core.records import Evidence


@st.composite
def evidences(draw, max_actors=5, max_classes=6, largest=1e6, dtype=torch.float64):
    """Evidence of every size that training meets: zero, tiny, huge."""
    num_actors = draw(st.integers(0, max_actors))
    num_classes = draw(st.integers(1, max_classes))
    numbers = st.one_of(st.just(0.0), st.floats(1e-6, 1e-2), st.floats(0.01, 50.0), st.floats(50.0, largest))
    count = 2 * num_actors * num_classes
    flat = torch.tensor(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=dtype)
    positive, negative = flat.reshape(2, num_actors, num_classes)
    return Evidence(positive=positive, negative=negative)


@st.composite
def evidences_with_targets(draw, **kwargs):
    """The same, with a 0/1 label for each actor and class."""
    evidence = draw(evidences(**kwargs))
    count = evidence.positive.numel()
    bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return evidence, torch.tensor(bits, dtype=torch.bool).reshape(evidence.positive.shape).double()


def unchecked(function):
    """The function as users call it: outside pytest nothing checks shapes before it does."""
    return inspect.unwrap(function)
