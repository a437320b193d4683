import itertools
import struct
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve
from strategies import unchecked
from torchmetrics.functional.classification import binary_calibration_error

from mule.core.errors import MuleError, NotFinite, RangeError, ShapeError
from mule.evaluation.class_figures import (
    ClassScores,
    Reliability,
    class_novelty_figure,
    novelty_percentiles,
    reliability,
    reliability_figure,
)
from mule.evaluation.drawing import (
    FIGURE_DPI,
    KNOWN,
    METHOD_COLOURS,
    NOVEL,
    method_styles,
    new_figure,
    write_figure,
)
from mule.evaluation.figures import (
    MethodCurves,
    ScoredActors,
    precision_recall_figure,
    roc_figure,
    roc_points,
    score_figure,
)
from mule.metrics import operating_curve

FEW_HOSTILE = ["$x_1^2$ $", "_hidden", "<b>{brace}\\n|%", "line\nbreak"]


def scored_actors(seed=0, num_known=60, num_novel=40, shift=1.0):
    """Rounded scores, so that some tie."""
    generator = np.random.default_rng(seed)
    is_novel = np.arange(num_known + num_novel) >= num_known
    return np.round(generator.normal(size=len(is_novel)) + shift * is_novel, 1), is_novel


def method_curves(name, num_trials=1):
    trials = tuple(operating_curve(*scored_actors(seed)) for seed in range(num_trials))
    return MethodCurves(name, trials, area=0.75)


def class_scores(names, num_actors=200):
    generator = np.random.default_rng(1)
    labels = generator.random((num_actors, len(names))) < 0.4
    return ClassScores(
        "a", tuple(names), np.arange(len(names)) % 2 == 1, generator.normal(size=num_actors), labels
    )


def drawn_by_every_function(names):
    """Each figure of this room with these names of methods, runs or classes."""
    styles = method_styles(names)
    novelty, is_novel = scored_actors()
    probabilities = np.random.default_rng(0).random((30, 4))
    found = reliability(probabilities, probabilities > 0.5)
    return {
        "roc": roc_figure([method_curves(name) for name in names], styles=styles),
        "mean roc": roc_figure([method_curves(name, 3) for name in names], styles=styles),
        "precision recall": precision_recall_figure([method_curves(name) for name in names], styles=styles),
        "scores": score_figure(
            [ScoredActors(name, novelty[~is_novel], novelty[is_novel], threshold=1.0) for name in names]
        ),
        "reliability": reliability_figure([(name, found) for name in names], styles=styles),
        "classes": class_novelty_figure(class_scores(names)),
    }


def settings_now():
    """All settings but the backend, which asking would choose."""
    return {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"}


def png_size(path):
    return struct.unpack(">II", path.read_bytes()[16:24])


def data_lines(axes):
    """The points of every line in a method's colour, and how it is drawn."""
    lines = [line for line in axes.get_lines() if line.get_color() in METHOD_COLOURS]
    return [(np.asarray(line.get_xydata()).T, line.get_drawstyle()) for line in lines]


def histograms(axes, *, is_filled):
    return [each for each in axes.patches if isinstance(each, StepPatch) and each.get_fill() is is_filled]


@pytest.mark.parametrize("names", [[], ["MULE"], FEW_HOSTILE], ids=["nobody", "one", "hostile names"])
def test_every_figure_is_written_at_its_size_and_leaves_nothing_open(names, tmp_path):
    backend, settings = mpl.get_backend(auto_select=False), settings_now()
    for kind, figure in drawn_by_every_function(names).items():
        path = tmp_path / f"{kind}.png"
        write_figure(figure, path)
        assert png_size(path) == tuple((figure.get_size_inches() * FIGURE_DPI).astype(int).tolist())
    assert sorted(tmp_path.iterdir()) == sorted(tmp_path.glob("*.png"))
    assert mpl.get_backend(auto_select=False) == backend
    assert settings_now() == settings
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_drawing_imports_no_pyplot_and_tables_import_no_matplotlib_and_neither_torch():
    code = (
        "import sys\n"
        "import mule.evaluation.formats, mule.evaluation.tables, mule.evaluation.pictures, mule.evaluation.figures\n"
        "assert 'matplotlib' not in sys.modules and 'torch' not in sys.modules\n"
        "from mule.evaluation.drawing import new_figure; new_figure(2.0, 2.0).savefig('/dev/null', format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MuleError, match=r"pip install 'mule-actions\[plots\]'"):
        new_figure(1.0, 1.0)


def test_a_figure_that_cannot_be_written_leaves_what_was_there(tmp_path):
    (tmp_path / "there").write_text("kept")
    with pytest.raises(MuleError, match="cannot be written"):
        write_figure(Figure(), tmp_path / "there" / "roc.png")
    assert (tmp_path / "there").read_text() == "kept"


def test_names_are_shown_and_never_read_as_mathematics():
    figure = roc_figure(
        [method_curves("$x_1$"), method_curves("a_b")], styles=method_styles(["$x_1$", "a_b"])
    )
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [r"75.0 \$x_1\$", "75.0 a_b"]


def test_a_roc_curve_is_sklearn_s():
    novelty, is_novel = scored_actors()
    expected = roc_curve(is_novel, novelty, drop_intermediate=False)
    curve = operating_curve(novelty, is_novel)
    np.testing.assert_allclose(roc_points(curve), expected[:2])
    figure = roc_figure([MethodCurves("a", (curve,), 0.8)], styles=method_styles(["a"]))
    ((points, _),) = data_lines(figure.axes[0])
    np.testing.assert_allclose(points, expected[:2])


def test_a_precision_recall_curve_is_sklearn_s_and_its_steps_enclose_the_average_precision():
    novelty, is_novel = scored_actors(shift=0.3)
    precision, recall, _ = precision_recall_curve(is_novel, novelty)
    finds = recall[:-1] > 0
    curve = operating_curve(novelty, is_novel)
    figure = precision_recall_figure([MethodCurves("a", (curve,), 0.8)], styles=method_styles(["a"]))
    (((x, y), drawstyle),) = data_lines(figure.axes[0])
    np.testing.assert_allclose(x[1:], recall[:-1][finds][::-1])
    np.testing.assert_allclose(y[1:], precision[:-1][finds][::-1])
    assert drawstyle == "steps-pre"
    assert np.sum(np.diff(x) * y[1:]) == pytest.approx(average_precision_score(is_novel, novelty))


def test_several_trials_are_averaged_and_one_deviation_is_shaded():
    curves = [operating_curve(*scored_actors(seed)) for seed in range(4)]
    figure = roc_figure([MethodCurves("a", tuple(curves), 0.8)], styles=method_styles(["a"]))
    (((x, y), _),) = data_lines(figure.axes[0])
    np.testing.assert_allclose(y, np.mean([np.interp(x, *roc_points(each)) for each in curves], axis=0))
    assert len(figure.axes[0].collections) == 1


def test_the_legend_lists_the_best_area_first():
    methods = [
        MethodCurves(name, method_curves(name).trials, area) for name, area in (("low", 0.5), ("high", 0.9))
    ]
    figure = roc_figure(methods, styles=method_styles(["low", "high"]))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["90.0 high", "50.0 low"]


@pytest.mark.parametrize("scale", ["even", "crowded"])
def test_a_score_histogram_counts_everybody(scale):
    novelty, is_novel = scored_actors(num_known=300, num_novel=200)
    novelty = novelty if scale == "even" else -np.exp(-3 * novelty)
    figure = score_figure([ScoredActors("a", novelty[~is_novel], novelty[is_novel], threshold=0.0)])
    outlines = histograms(figure.axes[0], is_filled=False)
    assert [each.get_edgecolor() for each in outlines] == [to_rgba(each) for each in (KNOWN, NOVEL)]
    assert [each.get_data()[0].sum() for each in outlines] == pytest.approx([100, 100])
    assert figure.axes[0].get_xscale() == ("linear" if scale == "even" else "asinh")


def test_scores_that_are_all_equal_are_drawn():
    figure = score_figure([ScoredActors("a", np.zeros(3), np.zeros(2))])
    heights = [each.get_data()[0].max() for each in histograms(figure.axes[0], is_filled=True)]
    assert heights == pytest.approx([100, 100])


def test_a_score_that_is_not_finite_is_an_error():
    with pytest.raises(NotFinite, match=r"1 of 2 novel actors under 'a'"):
        ScoredActors("a", np.zeros(3), np.array([0.0, np.inf]))


@pytest.mark.parametrize("num_bins", [1, 15])
def test_the_expected_calibration_error_is_torchmetrics(num_bins):
    generator = np.random.default_rng(3)
    probabilities = generator.random((50, 7))
    targets = generator.random((50, 7)) < probabilities**2
    found = reliability(probabilities, targets, num_bins=num_bins)
    expected = binary_calibration_error(
        torch.from_numpy(probabilities.ravel()), torch.from_numpy(targets.ravel()).long(), n_bins=num_bins
    )
    assert found.expected_error == pytest.approx(expected.item(), abs=1e-6)
    assert found.counts.sum() == 350


def test_bars_of_a_reliability_figure_are_scipys_wilson_intervals():
    generator = np.random.default_rng(4)
    probabilities = generator.random((40, 6))
    found = reliability(probabilities, generator.random((40, 6)) < probabilities**2, num_bins=10)
    figure = reliability_figure([("ours", found)], styles=method_styles(["ours"]))
    _, bars = [each for each in figure.axes[0].collections if isinstance(each, LineCollection)]
    for bar, observed, count in zip(bars.get_segments(), found.observed, found.counts, strict=True):
        interval = binomtest(round(observed * count), count).proportion_ci(0.95, method="wilson")
        assert bar[:, 1].tolist() == pytest.approx([interval.low, interval.high], abs=1e-6)


def test_the_diagonal_of_a_reliability_figure_lies_behind_bars_and_points():
    found = reliability(np.full((9, 2), 0.25), np.zeros((9, 2), dtype=bool), num_bins=10)
    (axes,) = reliability_figure([("ours", found)], styles=method_styles(["ours"])).axes
    diagonal, points = axes.lines[:2]
    bars = [each for each in axes.collections if isinstance(each, LineCollection)]
    assert np.asarray(diagonal.get_xydata()).tolist() == [[0, 0], [1, 1]]
    assert diagonal.get_zorder() < min(each.get_zorder() for each in (*bars, points))


def test_probabilities_that_hold_have_no_expected_error_and_nobody_has_none():
    sure = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert reliability(sure, sure > 0.5).expected_error == 0
    nobody = reliability(np.zeros((0, 3)), np.zeros((0, 3), dtype=bool))
    assert (nobody.expected_error, nobody.counts.sum()) == (0, 0)
    assert isinstance(nobody, Reliability)


def test_what_is_no_probability_is_an_error():
    with pytest.raises(RangeError, match="between 0 and 1; 2 do not"):
        reliability(np.array([[0.5, 1.5, np.nan]]), np.array([[True, True, True]]))
    with pytest.raises(ShapeError, match=r"\(1, 2\) and \(1, 1\)"):
        unchecked(reliability)(np.zeros((1, 2)), np.zeros((1, 1), dtype=bool))


def test_places_among_all_actors_are_mean_ranks():
    novelty = np.round(np.random.default_rng(2).normal(size=50), 1)
    below = (novelty[None] < novelty[:, None]).sum(axis=1)
    equal = (novelty[None] == novelty[:, None]).sum(axis=1)
    np.testing.assert_allclose(novelty_percentiles(novelty), 100 * (below + (equal - 1) / 2) / 49)
    assert novelty_percentiles(np.array([])).shape == (0,)
    assert novelty_percentiles(np.array([7.0])).tolist() == [0.0]


def test_classes_are_listed_from_the_most_novel_down_and_novel_ones_are_marked():
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], dtype=bool)
    scores = ClassScores(
        "a", ("sit", "run", "nobody"), np.array([False, True, False]), np.array([0.1, 0.9, 0.8]), labels
    )
    axes = class_novelty_figure(scores).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["▸ run", "sit", "nobody"]
    assert {"1", "2", "0"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize("num_classes", [14, 60])
def test_no_class_name_covers_another(num_classes):
    figure = class_novelty_figure(class_scores([f"class {at}" for at in range(num_classes)]))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert len(boxes) == num_classes
    for upper, lower in itertools.pairwise(boxes):
        assert lower.y1 <= upper.y0 + 1


def test_class_scores_must_fit_together():
    with pytest.raises(ShapeError, match=r"= \(2, 3\) .* got \(2, 1\) and 1"):
        ClassScores("a", ("sit", "run", "lie"), np.array([False]), np.zeros(2), np.zeros((2, 1), dtype=bool))
    with pytest.raises(NotFinite, match="1 of 2 actors"):
        ClassScores("a", ("sit",), np.array([False]), np.array([0.0, np.nan]), np.ones((2, 1), dtype=bool))


def test_a_method_has_the_same_style_in_every_figure_and_no_two_share_one():
    names = [f"method {at}" for at in range(35)]
    styles = method_styles(names, ours=["method 3"])
    assert len({(each.colour, each.dashes) for each in styles.values()}) == 35
    assert method_styles(names[:3])["method 2"] == styles["method 2"]
    assert styles["method 3"].width_pt > styles["method 2"].width_pt
    with pytest.raises(RangeError, match="at most 35 methods"):
        method_styles([*names, "one more"])
    with pytest.raises(RangeError, match="'ghost' has none"):
        roc_figure([method_curves("ghost")], styles=styles)


SEEN_BY = {  # linear RGB as seen with a missing cone (Machado, Oliveira and Fernandes 2009, severity 1)
    "everybody": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopes": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopes": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopes": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def cielab(colour, seen_by):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN_BY[seen_by]) @ linear, 0, 1)
    xyz = np.array(TO_XYZ) @ seen / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("seen_by", SEEN_BY)
@pytest.mark.parametrize(("colours", "apart"), [(METHOD_COLOURS, 25), ((KNOWN, NOVEL), 80)])
def test_colours_stay_apart_for_the_colour_blind_and_from_white(seen_by, colours, apart):
    seen = [cielab(colour, seen_by) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > apart
    assert min(np.linalg.norm(a - cielab("white", seen_by)) for a in seen) > 30


def test_twenty_names_do_not_cover_each_other_beside_the_curves():
    names = [f"a method with a long name, number {at}" for at in range(20)]
    figure = roc_figure([method_curves(name) for name in names], styles=method_styles(names))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
    for upper, lower in itertools.pairwise(boxes):
        assert lower.y1 <= upper.y0 + 1
    page = figure.bbox
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 for box in boxes)
    assert boxes[0].x0 > figure.axes[0].get_window_extent().x1
