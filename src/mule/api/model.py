"""The front door: `Model` loads, trains, watches, predicts, learns and saves."""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mule.api.exporting import DEFAULT_LIMIT, export_bundle
from mule.api.memories import Examples, exemplars_in_table
from mule.api.own_videos import DEFAULT_BACKBONE, OwnVideosPlan, train_on_own_videos
from mule.api.predicting import BoxRows, ClipArray, Prediction, example_row, predict_clip
from mule.core.errors import RangeError
from mule.core.locks import new_folder, only_writer
from mule.core.manifest import write_sealed
from mule.memory.building import SeenActors
from mule.memory.files import write_memory
from mule.memory.memory import Places
from mule.memory.taught import Remembered
from mule.memory.teaching import forget_action, require_new, teach_action
from mule.runtime.exported import ExportCard
from mule.training.step import Listener
from mule.video.sources import VideoSource
from mule.watching.deciding import DecideSettings, decide_again
from mule.watching.engine.bundle import (
    MEMORY,
    PEOPLE,
    Bundle,
    BundleCard,
    BundleError,
    packaged_folder,
    read_bundle,
)
from mule.watching.engine.watch import WatchSettings
from mule.watching.moments import Moment
from mule.watching.watch import watch

CLASSES_SHOWN = 5

ArrayExamples = Sequence[tuple[ClipArray, BoxRows]]
"""Pairs of a clip and the box of one person in it."""


class Model:
    """A model that recognises known actions of every person, and notices actions it was never taught.

    `teach` and `forget` change the model in memory; `save` writes it to a folder.

    >>> import numpy as np
    >>> from mule import Model
    >>> model = Model.load("stage")
    >>> clip = np.zeros((16, 96, 128, 3), dtype=np.uint8)
    >>> people = model.predict(clip, [[40, 20, 70, 90]])
    >>> len(people), people[0].decision in ("known", "novel")
    (1, True)
    """

    def __init__(self, bundle: Bundle) -> None:
        """Wrap a bundle; use `Model.load` or `Model.train` instead."""
        self._bundle = bundle
        self._origin = bundle.folder
        self._working_copy: Path | None = None

    @classmethod
    def load(cls, path_or_name: str | Path = PEOPLE) -> "Model":
        """Load a model.

        Args:
            path_or_name: a folder that `mule bundle`, `Model.train` or `Model.save` made, `people` or `stage`.

        Raises:
            MuleError: the folder holds no model, or its files do not belong together.

        >>> Model.load("stage").card.name
        'stage'
        """
        return cls(read_bundle(Path(path_or_name)))

    @classmethod
    def train(  # noqa: PLR0913 - the options of three commands
        cls,
        table: str | Path,
        *,
        videos: str | Path,
        out: str | Path,
        weights: str | Path | None = None,
        backbone: str = DEFAULT_BACKBONE,
        novel: Sequence[str] = (),
        groups: Mapping[str, str] | None = None,
        val_share: float = 0.25,
        test_share: float = 0.15,
        seed: int = 0,
        settings: Sequence[str] = (),
        detector: str | Path | None = None,
        listener: Listener | None = None,
    ) -> "Model":
        """Train a model on your own videos: split the table, train, remember and calibrate.

        The split, the feature maps and the run are kept in a folder beside `out` that ends in `.training`; an
        interrupted training continues from there. `mule evaluate run OUT.training/run` measures the result.

        Args:
            table: people and their actions, .csv or .parquet (see docs/QUICKSTART.md). Rows without a box get those of
                the people that the detector finds; rows without a time stand for the whole clip.
            videos: the folder of the videos.
            out: the folder of the model to make; it must not exist yet.
            weights: file of the backbone's weights, or a name of `mule weights list` (its beginning will do, such as
                `i3d`), which is downloaded if need be. By default those of the backbone.
            backbone: a backbone of `mule weights list`, whose weights stay as they are, or `tiny`, trained
                from scratch.
            novel: actions to hold out of training, to measure how well the model notices them. By default it
                learns all.
            groups: the film, camera or day of each video. Videos of one group stay on one side of the split.
            val_share: share of the people to calibrate on.
            test_share: share of the people to test on.
            seed: random seed of the split.
            settings: settings of the experiment, such as `training.epochs=40`.
            detector: file or name of the detector that finds people, also when the model watches.
            listener: receives progress; by default nothing is printed.

        Raises:
            MuleError: the table or a video cannot be used, or too few people are labelled.
        """
        plan = OwnVideosPlan(
            Path(table),
            Path(videos),
            Path(out),
            weights=weights,
            backbone=backbone,
            novel=tuple(novel),
            groups=dict(groups or {}),
            val_share=val_share,
            test_share=test_share,
            seed=seed,
            settings=tuple(settings),
            detector=None if detector is None else str(detector),
        )
        return cls(train_on_own_videos(plan, listener=listener))

    @property
    def card(self) -> BundleCard:
        """Name, checksums, training data, measurements and recommended detector."""
        return self._bundle.card

    @property
    def classes(self) -> tuple[str, ...]:
        """The actions the model knows, taught ones last."""
        return self._bundle.classes

    def watch(
        self,
        source: str | Path | VideoSource | Iterable[Any],
        **options: Any,  # noqa: ANN401 - those of `mule.watch`
    ) -> Generator[Moment, None, None]:
        """Watch a video and yield a moment for every key time.

        Args:
            source: anything `mule.watch` accepts: a file, a folder of images, a camera, an address, or frames.
            options: the keyword arguments of `mule.watch`, except `model`.

        >>> import numpy as np
        >>> frames = (np.zeros((96, 128, 3), np.uint8) for _ in range(32))
        >>> [moment.key_time_s for moment in Model.load("stage").watch(frames, rate=16)]
        [0.0, 1.0]
        """
        return watch(source, model=self._bundle, **options)

    def decide(
        self,
        watched: str | Path,
        *,
        threshold: str | None = None,
        min_probability: float | None = None,
        looks: int = WatchSettings.most_looks,
    ) -> None:
        """Decide again what was watched, without the video: after teaching, forgetting, or with another threshold.

        The moments in the folder, its summary, AVA's CSV and exports are replaced by what `watch` would write with this model.

        Args:
            watched: a folder that `mule watch` left, with what it kept (`looks.bin`).
            threshold: as for `watch`; by default that of the folder.
            min_probability: as for `watch`; by default that of the folder.
            looks: use at most this many recent looks per person.

        Raises:
            MuleError: nothing was kept, or another network watched.
        """
        settings = DecideSettings(threshold, min_probability, looks)
        decide_again(Path(watched), self._bundle, settings)

    def predict(
        self,
        clip: ClipArray,
        boxes: BoxRows,
        *,
        objects: BoxRows = (),
        rate: float | None = None,
        threshold: str = "known-95",
        min_probability: float | None = None,
    ) -> list[Prediction]:
        """Predict what each person of one clip does.

        Args:
            clip: frames x rows x columns x 3, RGB, uint8; a numpy array or a torch tensor.
            boxes: one row x1, y1, x2, y2 per person, in pixels, at the middle of the clip.
            objects: boxes of objects near the people, if a detector found some; relations to them count as
                evidence.
            rate: frames per second of the clip. The model then looks at a window of the length it was trained
                on, about the middle of the clip. Without a rate it looks at the whole clip.
            threshold: `known-95` calls at most 5 % of known people novel; `0.99` calls a person novel who
                looks more novel than 99 % of known people.
            min_probability: report a known action when its probability is at least this; None takes the model's own.

        Returns:
            One record per box, in the order of the boxes.
        """
        return predict_clip(
            self._bundle,
            clip,
            boxes,
            objects=objects,
            rate=rate,
            threshold=threshold,
            min_probability=min_probability,
        )

    def teach(
        self, action: str, examples: str | Path | ArrayExamples, *, videos: str | Path | None = None
    ) -> None:
        """Teach a new action from a few examples, without retraining; 10 to 20 are plenty.

        The model then recognises the action, no longer calls it novel, and forgets nothing else.

        Args:
            action: name of the new action.
            examples: a table of people (.csv or .parquet; rows that do not do the action are ignored), or
                pairs of a clip and the box of the person in it, as `predict` accepts them.
            videos: folder of the table's videos; by default `videos/` beside the table, or the table's own
                folder.

        Raises:
            MuleError: the action is known already, or the examples cannot be used.
        """
        remembered = self._remembered()
        require_new(remembered, action)
        if isinstance(examples, str | Path):
            table = Examples(Path(examples), None if videos is None else Path(videos))
            exemplars = exemplars_in_table(
                self._bundle.folder,
                remembered,
                action,
                table,
                noted=lambda sentence: warnings.warn(sentence, stacklevel=3),
            )
        else:
            exemplars = self._seen(action, examples, num_classes=remembered.memory.num_classes)
        self._change(teach_action(remembered, exemplars, class_name=action))

    def forget(self, action: str) -> None:
        """Forget an action, trained or taught; people who do it are novel from then on.

        >>> model = Model.load("stage")
        >>> action = model.classes[0]
        >>> model.forget(action)
        >>> action in model.classes
        False
        """
        self._change(forget_action(self._remembered(), action))

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder: a new one, or the one it was loaded from.

        Raises:
            BundleError: another folder of this name exists, or the model is the package's own and no new folder is
                given.
        """
        place = Path(folder)
        if place.exists() and place.samefile(self._origin):
            packaged = packaged_folder(place.name)
            if packaged is not None and place.samefile(packaged):
                raise BundleError(
                    f"{place}: a model of the package cannot be changed. Save to a folder of your own."
                )
            if self._working_copy is not None:
                with only_writer(place):
                    write_sealed(place, {MEMORY: (self._bundle.folder / MEMORY).read_bytes()})
            return place
        if place.exists():
            raise BundleError(f"{place}: must not exist yet; it does. Choose another name, or remove it.")
        with new_folder(place) as parts:
            shutil.copytree(self._bundle.folder, parts, dirs_exist_ok=True)
        return place

    def export(
        self,
        folder: str | Path,
        *,
        to: str = "onnx",
        size: tuple[int, int] | None = None,
        limit: float = DEFAULT_LIMIT,
        bits: int = 32,
    ) -> ExportCard:
        """Export the network as graphs that run without torch, after comparing them with torch.

        Args:
            folder: the folder to make; it must not exist yet.
            to: `onnx` or `openvino`.
            size: rows and columns of the clips, in pixels; by default 3 to 4.
            limit: largest difference from torch that passes, relative to the largest number of the same
                output.
            bits: 8 makes the network several times as fast (`openvino` only); ranges are chosen on the clips the model
                was trained on, and what changes for the people in other training clips is in `agreement` of the card.
        """
        return export_bundle(self._bundle, to, Path(folder), size=size, limit=limit, bits=bits)

    def __repr__(self) -> str:
        """Name the model, what it knows and what its novelty rests on.

        >>> repr(Model.load("stage")).startswith("Model('stage'")
        True
        """
        names = ", ".join(self.classes[:CLASSES_SHOWN]) + (", …" if len(self.classes) > CLASSES_SHOWN else "")
        remembered = self._bundle.judge.remembered
        memory = "no memory" if remembered is None else f"{len(remembered.memory)} remembered actors"
        held_out = "" if self._bundle.seen is not None else "held-out "
        return (
            f"Model({self.card.name!r}, {len(self.classes)} actions: {names}; {memory}; calibrated on "
            f"{self._bundle.usual.num_held_out} {held_out}known actors)"
        )

    def _remembered(self) -> Remembered:
        remembered = self._bundle.judge.remembered
        if remembered is None:
            raise RangeError(
                f"{self._origin}: a model must have a memory to learn or forget actions; this one has none. Make it with "
                "`mule bundle --memory`."
            )
        return remembered

    def _change(self, remembered: Remembered) -> None:
        """Read the model again with a changed memory, from a working copy of its folder."""
        if self._working_copy is None:
            folder = Path(tempfile.mkdtemp(prefix="mule-model-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            shutil.copytree(self._origin, folder, dirs_exist_ok=True)
            self._working_copy = folder
        write_memory(self._working_copy / MEMORY, remembered)
        self._bundle = read_bundle(self._working_copy)

    def _seen(self, action: str, examples: ArrayExamples, *, num_classes: int) -> SeenActors:
        rows = [example_row(self._bundle, clip, box) for clip, box in examples]
        seen = [inputs for _, inputs, _ in rows]
        count = len(rows)
        places = Places.of(
            [f"{action} {number + 1}" for number in range(count)],
            torch.zeros(count, dtype=torch.float64),
            torch.stack([box for _, _, box in rows]) if rows else torch.zeros(0, 4),
        )
        features = torch.cat([each for each, _, _ in rows]) if rows else torch.zeros(0, 1)
        inputs = {name: torch.cat([each[name] for each in seen]) for name in (seen[0] if seen else ())}
        return SeenActors(features, torch.zeros(count, num_classes), places, inputs)
