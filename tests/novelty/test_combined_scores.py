import math

import pytest
import torch
from scipy.stats import cauchy, chi2, combine_pvalues
from strategies import unchecked

from mule.core.errors import NotFitted, RangeError, ShapeError, TooFewActors
from mule.novelty.calibration import CalibratedScore, promised_threshold
from mule.novelty.combining import (
    CombinedScore,
    cauchy_statistic,
    fisher_statistic,
    folds_of,
)


def dependent_scores(num_actors, generator, shift=0.0):
    """Two scores of very different scale that share what makes an actor strange."""
    shared = torch.randn(num_actors, 1, generator=generator, dtype=torch.float64)
    own = torch.randn(num_actors, 2, generator=generator, dtype=torch.float64)
    mixed = 0.7 * shared + 0.7 * own + shift
    return torch.stack([1000 * mixed[:, 0], mixed[:, 1].exp()], dim=1)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_no_actors_combine_to_none():
    score = CombinedScore(2)
    generator = torch.Generator().manual_seed(0)
    score.fit(dependent_scores(50, generator), dependent_scores(50, generator))
    assert score(torch.zeros(0, 2)).rank.shape == (0,)


def test_fisher_for_independent_p_values_is_scipys():
    p_values = uniform(40, 3) ** 3
    expected = [combine_pvalues(row, method="fisher")[0] for row in p_values.numpy()]
    assert (2 * fisher_statistic(-torch.log(p_values))).tolist() == pytest.approx(expected)


def test_p_values_of_many_independent_held_out_actors_approach_scipys_fisher_p_values():
    """Novelty −log p has an exponential tail; a share of 20,000 held-out actors deviates by at most 0.0035."""
    held_out, p_values = -torch.log(uniform(40_000, 2, seed=7)), uniform(200, 2, seed=8)
    score = CombinedScore(2)
    score.fit(held_out[:20_000], held_out[20_000:])
    expected = [combine_pvalues(row, method="fisher")[1] for row in p_values.numpy()]
    assert score(-torch.log(p_values)).conformal_p_value.tolist() == pytest.approx(expected, abs=5 * 0.0035)


def test_cauchy_statistic_is_a_mean_of_cauchy_quantiles():
    p_values = uniform(40, 3).clamp(max=0.99)
    expected = cauchy.isf(p_values.numpy()).mean(axis=1)
    assert cauchy_statistic(-torch.log(p_values)).tolist() == pytest.approx(expected.tolist(), rel=1e-9)


def test_one_ordinary_score_does_not_drown_a_strange_one_under_cauchys_rule():
    ranks = torch.tensor([[0.0, -math.log(1e-6)], [0.0, 1e6]])
    statistic = cauchy_statistic(ranks)
    assert (statistic > 1e5).all()
    assert torch.isfinite(statistic).all()


def test_one_score_alone_keeps_its_order():
    generator = torch.Generator().manual_seed(3)
    held_out, novelty = dependent_scores(400, generator)[:, :1], dependent_scores(100, generator)[:, :1]
    score = CombinedScore(1)
    score.fit(held_out[:200], held_out[200:])
    assert (score(novelty).rank[novelty[:, 0].argsort()].diff() >= 0).all()


def test_rising_transforms_of_the_ranked_part_change_nothing():
    """Only ranks enter below the 95th percentile: a score may be scaled and shifted at will anywhere."""
    generator = torch.Generator().manual_seed(4)
    held_out, novelty = dependent_scores(300, generator), dependent_scores(50, generator)
    plain, scaled = CombinedScore(2), CombinedScore(2)
    plain.fit_crossed(held_out, folds_of(torch.arange(300)))
    by = torch.tensor([1e-3, 64.0], dtype=torch.float64)
    scaled.fit_crossed(held_out * by + 5, folds_of(torch.arange(300)))
    torch.testing.assert_close(plain(novelty).rank, scaled(novelty * by + 5).rank, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", ["fisher", "cauchy"])
def test_combined_p_values_of_dependent_scores_keep_the_conformal_guarantee(rule):
    """Two sets of held-out actors. 100 draws × 1,000 actors; the share is Beta with deviation 0.034 per draw."""
    generator = torch.Generator().manual_seed(5)
    shares = []
    for _ in range(100):
        score = CombinedScore(2, rule=rule)
        score.fit(dependent_scores(30, generator), dependent_scores(39, generator))
        p_values = score(dependent_scores(1000, generator)).conformal_p_value
        shares.append((p_values <= 0.05).double().mean().item())
    assert sum(shares) / len(shares) == pytest.approx(0.05, abs=4 * 0.034 / math.sqrt(100))


def test_crossing_flags_no_more_than_promised_where_reusing_the_same_actors_does():
    """39 held-out actors, promise 5 %, 80 draws × 1,000 actors; both see the same actors, so they are paired."""
    generator = torch.Generator().manual_seed(6)
    crossed_shares, reused_shares = [], []
    for _ in range(80):
        held_out, known = dependent_scores(39, generator), dependent_scores(1000, generator)
        score, reused = CombinedScore(2), CalibratedScore()
        score.fit_crossed(held_out, folds_of(torch.arange(39)))
        reused.fit(score.statistic(held_out))
        statistic = score.statistic(known)
        for calibrated, shares in ((score.together, crossed_shares), (reused, reused_shares)):
            threshold = promised_threshold(calibrated.held_out, alarm_rate=0.05)
            shares.append(threshold.decide(statistic).is_novel.double().mean().item())
    assert sum(crossed_shares) / 80 < 0.05 < sum(reused_shares) / 80
    assert sum(reused_shares) - sum(crossed_shares) > 80 * 0.015


def test_independent_looking_formula_claims_too_much_for_dependent_scores():
    generator = torch.Generator().manual_seed(7)
    score = CombinedScore(2)
    score.fit(dependent_scores(2000, generator), dependent_scores(2000, generator))
    known = dependent_scores(20_000, generator)
    ranks = torch.stack([each(known[:, i]).rank for i, each in enumerate(score.each)], dim=1)
    if_independent = chi2.sf(2 * fisher_statistic(ranks).numpy(), df=2 * ranks.shape[1])
    assert (if_independent <= 0.01).mean() > 0.015
    assert (score(known).p_value <= 0.01).double().mean().item() == pytest.approx(0.01, abs=0.006)


def test_actors_of_one_clip_share_a_fold():
    clip_index = torch.tensor([7, 3, 3, 9, 7, 12, 12])
    folds = folds_of(clip_index, num_folds=2)
    assert folds.tolist() == [1, 0, 0, 0, 1, 1, 1]
    assert folds_of(torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_clips_go_round_five_folds_in_turn_unless_asked_otherwise():
    clip_index = torch.tensor([70, 3, 3, 12, 90, 12, 41, 55, 8, 70])
    turn = {clip: at for at, clip in enumerate(sorted(set(clip_index.tolist())))}
    for num_folds, folds in ((5, folds_of(clip_index)), (3, folds_of(clip_index, num_folds=3))):
        assert folds.tolist() == [turn[clip] % num_folds for clip in clip_index.tolist()]


def test_a_combined_score_is_saved_with_the_state(tmp_path):
    generator = torch.Generator().manual_seed(8)
    score = CombinedScore(2)
    score.fit(dependent_scores(40, generator), dependent_scores(60, generator))
    torch.save(score.state_dict(), tmp_path / "score.pt")
    restored = CombinedScore(2)
    restored.load_state_dict(torch.load(tmp_path / "score.pt", weights_only=True))
    novelty = dependent_scores(20, generator, shift=1.0)
    assert torch.equal(restored(novelty).rank, score(novelty).rank)
    assert "rule='fisher'" in repr(restored)


def test_what_cannot_be_combined_is_refused():
    score, novelty = CombinedScore(2), torch.arange(60.0).reshape(30, 2)
    with pytest.raises(NotFitted, match="CalibratedScore must be fitted"):
        score(novelty)
    with pytest.raises(ShapeError, match=r"one column per score, \(actors, 2\); got \(30, 3\)"):
        score.statistic(torch.zeros(30, 3))
    with pytest.raises(ShapeError, match="one entry per actor, 30; got 29"):
        unchecked(CombinedScore.fit_crossed)(score, novelty, torch.arange(29))
    with pytest.raises(TooFewActors, match="at least 2 folds; got 1"):
        score.fit_crossed(novelty, torch.zeros(30, dtype=torch.int64))
    with pytest.raises(RangeError, match="num_scores must be at least 1; got 0"):
        CombinedScore(0)
    with pytest.raises(RangeError, match="rule must be one of fisher, cauchy; got 'stouffer'"):
        unchecked(CombinedScore.__init__)(CombinedScore(1), 2, rule="stouffer")
    with pytest.raises(RangeError, match="num_folds must be at least 2; got 1"):
        folds_of(torch.arange(3), num_folds=1)
