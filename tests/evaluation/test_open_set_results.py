import numpy as np
import pytest

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.open_set import (
    OpenSetMeasures,
    UndefinedMeasures,
    evaluate_open_set,
    evaluate_open_set_file,
    read_open_set_scores,
)
from mule.metrics import MEASURES, operating_curve


def actors(num_known, num_novel, seed=0):
    is_novel = np.arange(num_known + num_novel) < num_novel
    return np.random.default_rng(seed).normal(size=len(is_novel)) + is_novel, is_novel


def written(tmp_path, content):
    path = tmp_path / "scores.csv"
    path.write_text(content)
    return path


def test_nobody_to_evaluate_is_an_error():
    with pytest.raises(RangeError, match="0 novel actors of 0"):
        evaluate_open_set(np.zeros(0), np.zeros(0, dtype=bool))


def test_a_result_holds_every_measure_and_the_counts():
    novelty, is_novel = actors(40, 30)
    result = evaluate_open_set(novelty, is_novel, resamples=20)
    curve = operating_curve(novelty, is_novel)
    assert {name: getattr(result, name) for name in MEASURES} == {
        n: float(m(curve)) for n, m in MEASURES.items()
    }
    assert (result.num_known, result.num_novel) == (40, 30)
    assert result.groups == {}
    assert result.intervals is not None
    assert (result.intervals.level, result.intervals.resamples) == (0.95, 20)


def test_every_measure_is_explained_in_the_convention():
    result = evaluate_open_set(*actors(5, 5), resamples=10, level=0.8, seed=3)
    for name in MEASURES:
        assert f"{name}:" in result.convention or f"{name}, " in result.convention
    assert "80 % percentile bootstrap" in result.convention
    assert "10 resamples, seed 3" in result.convention


def test_no_resamples_leave_the_intervals_out():
    result = evaluate_open_set(*actors(5, 5), resamples=0)
    assert result.intervals is None
    assert "bootstrap" not in result.convention


def test_a_group_is_measured_as_if_alone_and_a_one_sided_one_says_why_not():
    novelty, is_novel = actors(20, 20)
    groups = {
        "some": np.arange(10, 30),
        "novel": np.arange(5),
        "known": np.arange(30, 40),
        "empty": np.arange(0),
    }
    result = evaluate_open_set(novelty, is_novel, groups=groups, resamples=0)
    alone = evaluate_open_set(novelty[10:30], is_novel[10:30], resamples=0)
    some = result.groups["some"]
    assert isinstance(some, OpenSetMeasures)
    assert some.auroc == alone.auroc
    told = {name: g.undefined for name, g in result.groups.items() if isinstance(g, UndefinedMeasures)}
    assert told == {
        "novel": "no known actors in this group",
        "known": "no novel actors in this group",
        "empty": "no novel actors in this group",
    }


def test_scores_are_read_by_column_name_with_groups_in_order_of_appearance(tmp_path):
    path = written(tmp_path, "clip,is_novel,group,novelty\nx,0,b,1\ny,TRUE,a,2\nz,false,b,3.5\nw, 1 ,a,-4\n")
    scores = read_open_set_scores(path)
    assert scores.novelty.tolist() == [1, 2, 3.5, -4]
    assert scores.is_novel.tolist() == [False, True, False, True]
    assert {name: members.tolist() for name, members in scores.groups.items()} == {"b": [0, 2], "a": [1, 3]}


def test_a_file_gives_the_result_of_its_arrays(tmp_path):
    novelty, is_novel = actors(5000, 4000)
    rows = "".join(f"{value!r},{int(flag)}\n" for value, flag in zip(novelty.tolist(), is_novel, strict=True))
    path = written(tmp_path, f"novelty,is_novel\n{rows}")
    assert evaluate_open_set_file(path, resamples=5) == evaluate_open_set(novelty, is_novel, resamples=5)


def test_a_one_sided_file_is_named(tmp_path):
    path = written(tmp_path, "novelty,is_novel\n1,0\n2,0\n")
    with pytest.raises(AnnotationError, match=r"scores\.csv: .* got 0 novel actors of 2"):
        evaluate_open_set_file(path)
