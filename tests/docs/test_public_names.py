"""Public names: each has an example that runs, and each has one meaning in the package."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import pytest

import mule

PACKAGE = Path(mule.__file__).parent

TYPER = {"app"}
"""Every file of a group of commands has one."""

KNOWN_TWICE: dict[str, set[str]] = {
    "AnyArray": {"evaluation.charades", "evaluation.mean_ap", "metrics"},
    "BOXES": {"runtime.graphs", "runtime.openvino"},
    "Boxes": {"data.batches.samples", "detection.boxes", "evaluation.ava", "video.transforms"},
    "CARD": {"runtime.exported", "training.run_folder"},
    "CLIPS": {"runtime.graphs", "runtime.openvino"},
    "Checkpoint": {"features.weights.checkpoints", "training.checkpoint"},
    "Count": {"core.config", "watching.moments"},
    "DPI": {"data.table.stats", "evaluation.drawing"},
    "FORMAT": {"runtime.exported", "watching.engine.bundle", "watching.moments"},
    "Frames": {"video.reading", "video.transforms"},
    "GRID": {"evaluation.drawing", "stage.figure"},
    "Image": {"stage.takes", "video.reading", "watching.outputs.annotating", "watching.thumbnails"},
    "LABELS": {"watching.engine.bundle", "watching.outputs.results"},
    "LONGEST_NAME": {"evaluation.drawing", "watching.outputs.annotating"},
    "MODEL": {"training.checkpoint", "training.run_folder"},
    "NO_TRACK": {"detection.tracks", "watching.engine.judging"},
    "NUM_FRAMES": {"comparison.compare", "stage.benchmark"},
    "Number": {"evaluation.tables", "stage.textures"},
    "OnProgress": {"stage.export", "training.maps"},
    "PACKAGES": {"runtime.engines", "training.run_folder"},
    "PERSON": {"detection.detections", "watching.outputs.exports"},
    "Picture": {"stage.textures", "video.decode"},
    "Points": {"evaluation.figures", "stage.figure"},
    "Policy": {"data.split.planning", "data.split.splits"},
    "Progress": {"features.extraction", "training.step"},
    "RIGHT": {"evaluation.pictures", "stage.poses"},
    "ROWS_AT_ONCE": {"evaluation.ava", "objective.hsic"},
    "Runtime": {"features.cache", "runtime.engines"},
    "SCENES": {"runtime.running", "stage.classes"},
    "STRIDE": {"detection.centres", "features.backbones.tiny"},
    "Scene": {"stage.classes", "watching.engine.finding"},
    "Share": {"core.config", "watching.moments"},
    "Summary": {"evaluation.outcomes", "watching.outputs.summary"},
    "TRAIN": {"data.split.partition", "inference.sides"},
    "Targets": {"evaluation.mean_ap", "systems.catalogue"},
    "VAL": {"data.split.partition", "inference.sides"},
    "VERSION": {"stage.classes", "watching.moments"},
    "View": {"stage.textures", "video.transforms", "watching.moments"},
    "Weights": {"evaluation.intervals", "training.checkpoint"},
    "differences": {"comparison.sheets", "core.config"},
    "initialise": {"features.backbones.residual", "training.build"},
    "labels_of": {"training.data", "watching.outputs.exports"},
    "read_ground_truth": {"evaluation.ava", "evaluation.charades"},
    "write_page": {"comparison.page", "watching.outputs.page"},
}
"""Names that still have several meanings, with the modules that define them. Remove a line when one is renamed."""


def definitions() -> dict[str, set[str]]:
    """The modules that define each public name at their top level."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined_by(node):
                if not name.startswith("_"):
                    modules[name].add(module)
    return modules


def defined_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []


def is_command(module: str) -> bool:
    """A command's function is called like the command, which is often the word for what it does."""
    return module.startswith("cli.")


def docstring_of(name: str) -> str:
    """The docstring of a public name; a constant has the string that follows its assignment."""
    value = getattr(mule, name)
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value):
        return value.__doc__ or ""
    source = (PACKAGE / "novelty" / "scores.py").read_text(encoding="utf-8")
    body = ast.parse(source).body
    at = next(place for place, node in enumerate(body) if name in defined_by(node))
    text = body[at + 1]
    assert isinstance(text, ast.Expr)
    assert isinstance(text.value, ast.Constant)
    return str(text.value.value)


@pytest.mark.parametrize("name", [name for name in mule.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    assert ">>>" in docstring_of(name), f"mule.{name} has no doctest; add one to its docstring"


def test_a_name_has_one_meaning():
    twice = {
        name: {module for module in modules if not is_command(module)}
        for name, modules in definitions().items()
        if name not in TYPER
    }
    twice = {name: modules for name, modules in twice.items() if len(modules) > 1}
    new = {
        name: sorted(modules)
        for name, modules in twice.items()
        if not modules <= KNOWN_TWICE.get(name, set())
    }
    assert not new, f"defined in more than one module; rename, or share one definition: {new}"


def test_the_list_of_names_with_several_meanings_is_short_of_nothing():
    """A name that has one meaning now leaves the list."""
    modules = definitions()
    done = [name for name, listed in KNOWN_TWICE.items() if len(listed & modules.get(name, set())) < 2]
    assert not done, f"these have one meaning now; remove them from KNOWN_TWICE: {done}"


def test_star_import_and_completion_offer_the_same_names():
    assert set(mule.__all__) == set(dir(mule))
    assert {"Model", "metrics", "OpenSetMetrics", "watch"} <= set(mule.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mule.nothing  # noqa: B018 - the access is the test
