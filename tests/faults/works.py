"""Pieces of work that write: what each begins with, does, and leaves."""

import json
import shutil
import tomllib
from fractions import Fraction
from pathlib import Path

import safetensors.torch
from tiny_extraction import render, tiny_backbone
from tiny_rows import Contestant, Judging, silent, tiny_experiment, watched_by_nobody

from mule.api.bundling import BundlePlan, make_bundle
from mule.cli.teach import teach
from mule.comparison.compare import ComparisonPlan, run_comparison, write_comparison
from mule.comparison.page import PageFacts
from mule.core.errors import MuleError
from mule.features.cache import Every
from mule.features.extraction import Extractor
from mule.memory.files import read_memory
from mule.training.build import run_experiment
from mule.training.checkpoint import CheckpointError, Checkpoints
from mule.training.choosing import settled
from mule.training.run_folder import METRICS, read_metrics
from mule.training.step import Silence
from mule.watching.engine.bundle import MEMORY, read_bundle
from mule.watching.engine.watch import WatchSettings, open_watch
from mule.watching.outputs.moments_file import MOMENTS
from mule.watching.outputs.results import recorded, write_outputs

TIMED = {"run.json", "log.txt", METRICS}
"""Files that say when or how long, and so differ from run to run."""
OF_STATES = ("state.pt", "digests.json")
"""Pickles of equal values may differ, and so their digests; the weights show what was in them."""
GROWING = {METRICS, MOMENTS, "log.txt"}
"""Files that are written line by line, and read without a last line that was cut off."""
NOTE = "what somebody wrote before"
TAKE = Path(__file__).parents[1] / "saved" / "take"
VIDEO = TAKE / "videos" / "clip_000000.mp4"


def is_final(name):
    """Whether a file has its final name: it is not hidden, nor in a folder that is."""
    return not any(part.startswith(".") or part.endswith((".parts", ".tmp")) for part in name.parts)


def readable(name, content):
    """Whether a file is whole, as far as its kind can tell."""
    try:
        if name.suffix == ".json":
            json.loads(content)
        elif name.suffix == ".toml":
            tomllib.loads(content.decode())
        elif name.suffix == ".safetensors":
            safetensors.torch.load(content)
        else:
            return False
    except Exception:
        return False
    return True


class Work:
    """Work in a folder; its parts that need no trial are made once, in a shared one."""

    def __init__(self, shared):
        self.shared = shared

    def begin(self, folder):
        (folder / "note.txt").write_text(NOTE)

    def run(self, folder):
        raise NotImplementedError

    def files(self, folder):
        paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        return {name: (folder / name).read_bytes() for name in paths if is_final(name)}

    def result(self, folder):
        return {str(name): content for name, content in self.files(folder).items() if name.name not in TIMED}

    def kept(self, folder):
        """What the work has no reason to touch."""
        return {"note.txt": (folder / "note.txt").read_text()}

    def half_made(self, folder, clean):
        for name, content in self.files(folder).items():
            if name.name in GROWING or "checkpoints" in name.parts:
                continue  # both are read with care; the next run shows it
            if clean.get(str(name)) != content and not readable(name, content):
                yield f"{name} ({len(content)} bytes)"


class Extracting(Work):
    def __init__(self, shared):
        super().__init__(shared)
        self.video = render(shared / "stripes.mp4")

    def run(self, folder):
        Extractor(tiny_backbone(), folder / "maps", part_clips=4).extract(self.video, Every(Fraction(1)))


class OfRuns(Work):
    """Work with a trained run, which is made once."""

    def __init__(self, shared):
        super().__init__(shared)
        self.experiment = tiny_experiment(
            shared / "stage",
            system="mule",
            data__train_clips=16,
            data__val_clips=14,
            data__num_frames=8,
            data__stride_frames=2,
            training__checkpoint_every_steps=2,
        )
        self.trained = shared / "trained"
        if not self.trained.exists():
            run_experiment(self.experiment, self.trained, listener=Silence())


class Training(OfRuns):
    """A whole training; its checkpoints are kept whatever comes after them."""

    def run(self, folder):
        run_experiment(self.experiment, folder / "run", listener=Silence(), resumes=True)

    def half_made(self, folder, clean):
        yield from super().half_made(folder, clean)
        kept = Checkpoints(folder / "run" / "checkpoints")
        for step in kept.steps():
            try:
                kept.load(step)
            except CheckpointError as error:
                yield str(error)

    def result(self, folder):
        steps = [
            {key: value for key, value in line.items() if not key.endswith("_s")}
            for line in read_metrics(folder / "run" / METRICS)
        ]
        whole = super().result(folder)
        weights = {name: whole[name] for name in whole if not name.endswith(OF_STATES)}
        return {**weights, METRICS: steps}


class Comparing(OfRuns):
    """A comparison of one row."""

    def run(self, folder):
        self.compared(folder / "compared")

    def compared(self, out):
        wanted = tiny_experiment(self.shared / "stage", training__epochs=1)
        plan = ComparisonPlan(
            (Contestant("slowfast", settled(wanted)),),
            out,
            judging=Judging(resamples=5, dropout_passes=0, test_clips=8),
            num_workers=0,
        )
        done = run_comparison(plan, watch=watched_by_nobody, noted=silent)
        for failure in done.failures:
            assert ", line" not in failure.reason, f"no sentence: {failure.reason}"
            raise MuleError(failure.reason)
        assert done.findings is not None
        return plan, done.findings


class Reporting(Comparing):
    """Tables, figures and pages of a comparison that is finished."""

    def __init__(self, shared):
        super().__init__(shared)
        if not (shared / "compared").exists():
            self.compared(shared / "compared")

    def begin(self, folder):
        super().begin(folder)
        shutil.copytree(self.shared / "compared", folder / "compared")

    def run(self, folder):
        plan, findings = self.compared(folder / "compared")
        facts = PageFacts(command="mule compare", budget="", failures={}, elapsed_s=1.0, table=None)
        write_comparison(findings, plan, facts, pictures=False, docs=None)

    def kept(self, folder):
        rows = [path for path in (folder / "compared" / "rows").rglob("*") if path.is_file()]
        return super().kept(folder) | {
            str(path): path.read_bytes() for path in rows if path.name != "log.txt"
        }


class Bundling(OfRuns):
    def begin(self, folder):
        super().begin(folder)
        shutil.copytree(self.trained, folder / "run")

    def run(self, folder):
        if (folder / "bundle").exists():
            read_bundle(folder / "bundle")  # complete, or it would not have this name
        else:
            make_bundle(BundlePlan(folder / "run", folder / "bundle", "tiny"))

    def kept(self, folder):
        run = [path for path in (folder / "run").rglob("*") if path.is_file()]
        whole = {path: path.read_bytes() for path in run if path.name != "log.txt"}
        return super().kept(folder) | {
            str(path.relative_to(folder)): content
            for path, content in whole.items()
            if "outputs" not in path.parts
        }


class OfBundles(OfRuns):
    """Work with a bundle, which is made once."""

    def __init__(self, shared):
        super().__init__(shared)
        self.bundled = shared / "bundled"
        if not self.bundled.exists():
            make_bundle(BundlePlan(self.trained, self.bundled, "tiny"))


class Watching(OfBundles):
    """A watch, and what is made of its moments."""

    def run(self, folder):
        watcher = open_watch(
            VIDEO,
            read_bundle(self.bundled),
            detector=TAKE,
            settings=WatchSettings(every_s=0.5, explains=False),
        )
        for _ in recorded(watcher, folder / "watched", resumes=True):
            pass
        write_outputs(folder / "watched", watcher.source, exports=("coco", "viame", "cvat"))


class Teaching(OfBundles):
    """A bundle is taught an action; whatever fails, it can be used, with its memory of before or the new one."""

    ACTION = "hop"

    def begin(self, folder):
        super().begin(folder)
        shutil.copytree(self.bundled, folder / "bundle")
        rows = [line.split(",") for line in (TAKE / "actors.csv").read_text().splitlines()]
        taught = [rows[0], *([*row[:6], self.ACTION, *row[7:]] for row in rows[1:])]
        (folder / "examples.csv").write_text("".join(",".join(row) + "\n" for row in taught))

    def run(self, folder):
        if self.ACTION in read_memory(folder / "bundle" / MEMORY).memory.class_names:
            read_bundle(folder / "bundle")
            return
        examples = folder / "examples.csv"
        teach(
            folder / "bundle",
            self.ACTION,
            examples,
            videos=TAKE / "videos",
            memory=None,
            out=None,
            settings=[f"data.root={self.shared / 'stage'}"],
        )

    def kept(self, folder):
        others = [path for path in (folder / "bundle").iterdir() if path.name[0] != "."]
        return super().kept(folder) | {
            path.name: path.read_bytes() for path in others if path.name not in (MEMORY, "mule-manifest.json")
        }

    def result(self, folder):
        """Without the manifest, which may tell of a change that was made; whether it is accepted is looked at apart."""
        whole = super().result(folder)
        return {name: whole[name] for name in whole if Path(name).name != "mule-manifest.json"}

    def half_made(self, folder, clean):
        yield from super().half_made(folder, clean)
        try:
            read_bundle(folder / "bundle")
        except MuleError as error:
            yield f"the bundle cannot be used: {error}"


WORKS = {
    "extract": Extracting,
    "train": Training,
    "compare": Comparing,
    "report": Reporting,
    "bundle": Bundling,
    "watch": Watching,
    "teach": Teaching,
}
