"""The nearest entries, against loops and scikit-learn."""

import sys

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from strategies import unchecked

from bench.searching import recall
from mule.core.errors import RangeError, ShapeError
from mule.memory import search
from mule.memory.memory import unit_features
from mule.memory.search import NO_ENTRY, EntrySearch, SearchUnavailable


def sphere(count, seed, dim=9):
    return unit_features(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)))


def clusters(count, seed, dim=16, centres=12, spread=0.15):
    """Points as a network's features lie: near a few directions."""
    draw = torch.Generator().manual_seed(7)
    middles = torch.randn(centres, dim, generator=draw)
    draw = torch.Generator().manual_seed(seed)
    near = middles[torch.randint(centres, (count,), generator=draw)]
    return unit_features(near + spread * torch.randn(count, dim, generator=draw) * dim**0.5)


def test_nobody_is_nearest_to_no_actors_and_in_a_memory_without_entries():
    entries = sphere(5, 0)
    nothing = EntrySearch(entries, torch.arange(5)).nearest(entries[:0], 3)
    assert nothing.index.shape == nothing.distance.shape == (0, 3)
    empty = EntrySearch(entries[:0], torch.arange(0)).nearest(entries, 3)
    assert (empty.index == NO_ENTRY).all()
    assert torch.isinf(empty.distance).all()


@pytest.mark.parametrize("k", [1, 10, 60])
def test_nearest_entries_are_scikit_learns(k):
    entries, queries = sphere(60, 0), sphere(40, 1)
    oracle = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(entries.double().numpy())
    distance, index = oracle.kneighbors(queries.double().numpy())
    found = EntrySearch(entries, torch.arange(60)).nearest(queries, k)
    np.testing.assert_allclose(found.distance.numpy(), distance, atol=2e-6)
    np.testing.assert_array_equal(found.index.numpy(), index)


def test_entries_of_the_actors_own_group_do_not_count():
    entries, queries = sphere(30, 0), sphere(12, 1)
    groups, own = torch.arange(30) % 4, torch.arange(12) % 4
    found = EntrySearch(entries, groups).nearest(queries, 5, excluding=own)
    for i in range(12):
        allowed = [j for j in range(30) if groups[j] != own[i]]
        expected = sorted(allowed, key=lambda j: (queries[i].double() - entries[j].double()).norm().item())
        assert found.index[i].tolist() == expected[:5]


def test_where_too_few_are_allowed_the_rest_is_nobody():
    entries = sphere(4, 0)
    found = EntrySearch(entries, torch.tensor([0, 0, 0, 1])).nearest(
        entries[:1], 3, excluding=torch.tensor([0])
    )
    assert found.index.tolist() == [[3, NO_ENTRY, NO_ENTRY]]
    assert torch.isinf(found.distance[0, 1:]).all()


@pytest.mark.parametrize("method", ["exact", "inverted_file"])
def test_blocks_do_not_change_the_answer(monkeypatch, method):
    entries, queries, groups = sphere(50, 0), sphere(23, 1), torch.arange(50) % 7
    own = torch.arange(23) % 7
    whole = EntrySearch(entries, groups, method=method).nearest(queries, 6, excluding=own)
    monkeypatch.setattr(search, "NUMBERS_AT_ONCE", 200)
    blocks = EntrySearch(entries, groups, method=method).nearest(queries, 6, excluding=own)
    assert torch.equal(whole.index, blocks.index)
    assert torch.equal(whole.distance, blocks.distance)


def test_near_neighbours_keep_their_digits():
    """2 − 2·cosine is 0 for both in single precision."""
    entries = torch.tensor([[1.0, 0.0, 0.0]])
    queries = unit_features(torch.tensor([[1.0, 1e-5, 0.0], [1.0, 2e-5, 0.0]]))
    found = EntrySearch(entries, torch.tensor([0])).nearest(queries, 1)
    np.testing.assert_allclose(found.distance[:, 0].numpy(), [1e-5, 2e-5], rtol=1e-4)


def test_a_feature_of_zeros_is_equally_far_from_everybody():
    found = EntrySearch(sphere(8, 0), torch.arange(8)).nearest(torch.zeros(1, 9), 8)
    torch.testing.assert_close(found.distance, torch.ones(1, 8))


@pytest.mark.parametrize("exclude", [False, True])
def test_an_inverted_file_finds_nearly_all_neighbours_of_clustered_features_and_says_so(exclude):
    entries, queries = clusters(3000, 0), clusters(100, 1)
    groups = torch.arange(3000) // 3
    fast = EntrySearch(entries, groups, method="inverted_file", share_probed=0.2)
    assert recall(fast, queries) > 0.95
    own = torch.arange(100) if exclude else None
    found = fast.nearest(queries, 20, excluding=own)
    assert fast.method == "inverted_file"
    assert (found.distance.diff(dim=1) >= 0).all()
    truly = EntrySearch(entries, groups, method="exact").nearest(queries, 20, excluding=own)
    shared = (truly.index[:, :, None] == found.index[:, None, :]).any(dim=2).float().mean().item()
    assert shared > 0.95
    if exclude:
        assert (groups[found.index] != torch.arange(100)[:, None]).all()


def test_looking_into_more_cells_finds_more_and_all_of_them_everything():
    entries, queries = sphere(2000, 0), sphere(60, 1)
    found = [
        recall(EntrySearch(entries, torch.arange(2000), method="inverted_file", share_probed=share), queries)
        for share in (0.02, 0.2, 1.0)
    ]
    assert found[0] < found[1] < found[2] == pytest.approx(1.0, abs=1e-3)


def test_exact_search_misses_nobody_and_very_many_entries_choose_the_inverted_file(monkeypatch):
    entries = sphere(200, 0)
    assert recall(EntrySearch(entries, torch.arange(200)), sphere(10, 1)) == 1.0
    monkeypatch.setattr(search, "MOST_EXACT", 199)
    assert EntrySearch(entries, torch.arange(200)).method == "inverted_file"
    assert EntrySearch(entries, torch.arange(200), method="exact").method == "exact"


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(SearchUnavailable, match=r"pip install 'mule-actions\[faiss\]'"):
        EntrySearch(sphere(50, 0), torch.arange(50), method="inverted_file")


def test_bad_questions_are_refused():
    entries = sphere(10, 0)
    ready = EntrySearch(entries, torch.arange(10))
    with pytest.raises(RangeError, match="num_neighbours must be at least 1; got 0"):
        ready.nearest(entries, 0)
    with pytest.raises(ShapeError, match="queries must have 9 dimensions, as the memory has; got 8"):
        unchecked(EntrySearch.nearest)(ready, entries[:, :8], 2)
    with pytest.raises(RangeError, match="share_probed must lie above 0"):
        EntrySearch(entries, torch.arange(10), share_probed=0.0)
    with pytest.raises(ShapeError, match="one row per entry; got 10 and 9"):
        unchecked(EntrySearch.__init__)(ready, entries, torch.arange(9))
