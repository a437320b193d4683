"""Train on your own videos: a table of people, a folder of videos and backbone weights become a model.

table ─▶ people with boxes ─▶ split ─▶ run ─▶ bundle     what `mule data detect`, `data split`, `train` and `bundle` do

Everything that is decided on the way is said before the training begins.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from mule.api.bundling import RECOMMENDED_DETECTOR, BundlePlan, make_bundle
from mule.api.own_people import People, people_with_boxes, require_readable
from mule.core.config import PACKAGED, ConfigError, experiment_toml, load_experiment
from mule.core.errors import DetectorError, TooFewActors, WeightsError, did_you_mean
from mule.core.files import cache_folder, write_file
from mule.core.locks import only_writer
from mule.core.progress import advance
from mule.core.settings import Experiment
from mule.data.split.partition import closed_partition, drawn_sides, listed_partition
from mule.data.split.sides import OpenSetSides, apply_split
from mule.data.split.splits import ClassSets, Rules, Split, table_digest, write_split
from mule.data.table.reading import read_actor_table
from mule.data.table.stats import FEWEST_CALIBRATING
from mule.data.table.table import ActorTable
from mule.data.table.writing import write_actor_table
from mule.detection.cards import DETECTOR_CARDS
from mule.detection.named import detector_place
from mule.features.weights.cards import WEIGHT_CARDS, find_card
from mule.features.weights.checkpoints import read_checkpoint
from mule.features.weights.download import Downloadable, pull
from mule.features.weights.loading import fitting_cards, match_card, nearest_card
from mule.training.build import TINY, run_experiment
from mule.training.data import Noted
from mule.training.run_folder import with_default_paths
from mule.training.step import Listener, Silence
from mule.watching.engine.bundle import Bundle, BundleError

FEWEST_VALIDATION_ACTORS = FEWEST_CALIBRATING
"""Calibration leaves a fifth of them out in turn, and needs twenty of the rest."""
DEFAULT_BACKBONE = "i3d_rgb_kinetics400"
FEWEST_STEPS = 160
"""A small folder trains for more epochs: with fewer steps no action of a clip becomes probable."""
_ACTORS, _PARTIAL, _SPLIT, _EXPERIMENT, _RUN = (
    "actors.csv",
    "people.partial",
    "split.toml",
    "experiment.toml",
    "run",
)


@dataclass(frozen=True)
class OwnVideosPlan:
    """What to train on, and how."""

    table: Path
    videos: Path
    out: Path
    """The folder of the model; it must not exist yet. The training is kept beside it, in a folder that ends in .training."""
    weights: str | Path | None = None
    """A file, a name of `mule weights list`, or its beginning, such as `i3d`; by default the backbone's."""
    backbone: str = DEFAULT_BACKBONE
    """A frozen backbone of `mule weights list`, or `tiny`, which is trained from scratch; a file of weights says itself."""
    name: str | None = None
    novel: tuple[str, ...] = ()
    """Actions held out of training, to evaluate novelty on."""
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    """The group (film, camera, day) of each video; videos of one group stay on one side."""
    val_share: float = 0.25
    test_share: float = 0.15
    seed: int = 0
    settings: Sequence[str] = ()
    """Settings of the experiment, such as `training.epochs=40`."""
    has_pictures: bool = True
    detector: str | None = None
    """Finds people where the table has no boxes, and when the model watches: a file or a name of `mule weights list`."""
    resumes: bool = True
    """Whether an interrupted training continues; otherwise it is refused."""

    @property
    def folder(self) -> Path:
        """The folder of people, split, experiment, feature maps and run."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def run_dir(self) -> Path:
        """The folder of the run."""
        return self.folder / _RUN


def train_on_own_videos(plan: OwnVideosPlan, *, listener: Listener | None = None) -> Bundle:
    """Find people, split the table, train, and bundle the run. An interrupted training continues where it stopped.

    Raises:
        BundleError: the model's folder exists already.
        ConfigError: the folder of the training holds one, and the plan does not resume.
        TooFewActors: the table has too few people to calibrate on.
    """
    listener = listener or Silence()
    require_new_model(plan)
    with only_writer(plan.folder):
        experiment = _prepared(plan, listener.noted)
        run_experiment(experiment, plan.run_dir, listener=listener, resumes=True)
        bundle = BundlePlan(
            plan.run_dir,
            plan.out,
            plan.name or plan.out.name,
            has_pictures=plan.has_pictures,
            detector=_detector_on_disk(plan) or RECOMMENDED_DETECTOR,
        )
        return make_bundle(bundle, noted=listener.noted)


def require_new_model(plan: OwnVideosPlan) -> None:
    """Check that nothing is trained twice.

    Raises:
        BundleError: the model exists.
        ConfigError: a training was begun, and the plan does not resume.
    """
    if plan.out.exists():
        raise BundleError(
            f"{plan.out}: must not exist yet; it does. Choose another name, or remove it. If it is the model: `mule watch "
            f"VIDEOS --model {plan.out}`."
        )
    if not plan.resumes and plan.run_dir.exists():
        raise ConfigError(
            f"{plan.folder}: a new training needs a new folder; this one holds a training that was begun. Continue it "
            "(--resume), choose another folder (--out), or remove it."
        )


def _prepared(plan: OwnVideosPlan, noted: Noted) -> Experiment:
    """Decide everything, say it, and write the table, the split and the experiment."""
    table = read_actor_table(plan.table, allow_unlabelled=True)
    _detector_on_disk(plan)  # a wrong name is reported now
    _classes(plan, table)  # a misspelt novel action is reported before anybody is looked for
    people = _people(plan, table)
    split = _split(plan, people.actors)
    used = apply_split(people.actors, split)
    _require_enough(plan, used)
    name, weights = backbone_of(plan)
    write_actor_table(people.actors, plan.folder / _ACTORS)
    write_split(split, plan.folder / _SPLIT)
    experiment = _experiment(plan, name, weights, used)
    for sentence in (*people.sentences, *_decisions(plan, split, used), *_network(experiment), _places(plan)):
        noted(sentence)
    return experiment


def _people(plan: OwnVideosPlan, table: ActorTable) -> People:
    videos = require_readable(table, plan.videos)
    if table.has_box.all():
        return People(table)
    detector = plan.detector or RECOMMENDED_DETECTOR
    if not Path(detector).exists() and detector in DETECTOR_CARDS:
        _pulled(DETECTOR_CARDS[detector])
    return people_with_boxes(table, videos, detector=detector, partial=plan.folder / _PARTIAL)


def _detector_on_disk(plan: OwnVideosPlan) -> Path | None:
    """What the model watches with goes into its folder; a recommended detector that was not pulled is only named."""
    try:
        return detector_place(plan.detector or RECOMMENDED_DETECTOR)
    except DetectorError:
        if plan.detector is not None:
            raise
        return None


def _classes(plan: OwnVideosPlan, table: ActorTable) -> ClassSets:
    if not plan.novel:
        return closed_partition(table.classes)
    listed = listed_partition(table.classes, plan.novel)
    return replace(
        listed, novel_choose=(), novel_report=listed.z3
    )  # one model: there is nothing to choose between


def _split(plan: OwnVideosPlan, table: ActorTable) -> Split:
    classes = _classes(plan, table)
    rules = Rules(z1_at_test="known", sides="drawn", val_share=plan.val_share, test_share=plan.test_share)
    groups = {video: plan.groups.get(video, video) for video in table.videos} if plan.groups else {}
    sides = drawn_sides(
        table,
        classes,
        val_share=plan.val_share,
        test_share=plan.test_share,
        seed=plan.seed,
        groups=groups,
    )
    return Split(
        name=plan.table.stem,
        policy="list" if plan.novel else "closed",
        seed=plan.seed,
        table_digest=table_digest(table),
        classes=classes,
        rules=rules,
        videos=sides,
        groups=groups,
    )


def _require_enough(plan: OwnVideosPlan, used: OpenSetSides) -> None:
    used.report.require_usable()
    if plan.backbone != TINY and len(used.train) + len(used.val) < FEWEST_VALIDATION_ACTORS:
        raise TooFewActors(
            f"{plan.table}: training and validation must have at least {FEWEST_VALIDATION_ACTORS} people together, to "
            f"calibrate novelty on; they have {len(used.train) + len(used.val)}. Label more people."
        )
    if plan.backbone == TINY and len(used.val) < FEWEST_VALIDATION_ACTORS:
        raise TooFewActors(
            f"{plan.table}: the validation side must have at least {FEWEST_VALIDATION_ACTORS} people, to calibrate novelty "
            f"on; it has {len(used.val)}. Label more people, or raise val_share ({plan.val_share:g})."
        )


def _decisions(plan: OwnVideosPlan, split: Split, used: OpenSetSides) -> list[str]:
    """What was decided about actions and people, by which rule."""
    known, novel = split.classes.known_train, split.classes.z3
    unit = "film" if plan.groups else "video"
    sentences = [
        f"known actions ({len(known)}): {', '.join(known)}",
        f"novel actions ({len(novel)}): {', '.join(novel)}; they are only in the test"
        if novel
        else "novel actions: none, every action of the table is taught",
        f"people: {len(used.train)} to train on, {len(used.val)} to choose the best epoch, {len(used.test)} to test on; drawn "
        f"at random by {unit}, {1 - plan.val_share - plan.test_share:.0%} / {plan.val_share:.0%} / {plan.test_share:.0%}, so "
        f"that no {unit} is on two sides",
    ]
    if not plan.groups:
        sentences.append(
            "if several clips are cut from one film, say so in videos.csv (columns video, film), or the test is too easy"
        )
    if plan.backbone != TINY:
        sentences.append(
            f"novelty is calibrated on the {len(used.train) + len(used.val)} people of training and validation, each compared "
            f"with those of other {unit}s (at least {FEWEST_VALIDATION_ACTORS} are needed)"
        )
    return sentences


def enough_epochs(epochs: int, *, num_clips: int, batch_clips: int) -> int:
    """Return the epochs, or as many more as a small folder needs for `FEWEST_STEPS`.

    >>> enough_epochs(20, num_clips=26, batch_clips=16), enough_epochs(20, num_clips=500, batch_clips=16)
    (160, 20)
    """
    return max(epochs, -(-FEWEST_STEPS // max(1, num_clips // batch_clips)))


def _network(experiment: Experiment) -> list[str]:
    backbone, data = experiment.backbone, experiment.data
    if not backbone.frozen or data.kind != "table":
        return []
    return [
        f"training: {experiment.training.epochs} epochs of {experiment.training.batch_clips} clips a step",
        f"backbone: {backbone.name} from {backbone.weights}, frozen, run by {backbone.runtime}; it sees {data.num_frames} "
        f"frames around each moment",
    ]


def _places(plan: OwnVideosPlan) -> str:
    return f"the training is kept in {plan.folder}, the model will be {plan.out}"


def backbone_of(plan: OwnVideosPlan) -> tuple[str, Path | None]:
    """Return the name of the backbone and the file of its weights, downloaded if need be.

    Raises:
        WeightsError: the file fits no card, or there is no card of that name.
        DownloadError: the weights are not on disk and cannot be downloaded.
    """
    if plan.backbone == TINY:
        return TINY, None
    wanted = str(plan.weights or plan.backbone)
    if Path(wanted).is_file():
        return _card_of(Path(wanted), plan.backbone), Path(wanted)
    name = card_called(wanted)
    return name, _pulled(find_card(name))


def card_called(name: str) -> str:
    """Return the one card of that name, or whose name begins with it.

    >>> card_called("i3d")
    'i3d_rgb_kinetics400'

    Raises:
        WeightsError: there is no such card, or several.
    """
    if name in WEIGHT_CARDS:
        return name
    called = [each for each in WEIGHT_CARDS if each.startswith(f"{name}_")]
    if len(called) != 1:
        found = f"several begin with it: {', '.join(called)}" if called else "none has that name"
        raise WeightsError(
            f"{name}: weights must be a file or a name of `mule weights list`; {found}.{did_you_mean(name, WEIGHT_CARDS)}"
        )
    return called[0]


def _card_of(file: Path, backbone: str) -> str:
    checkpoint = read_checkpoint(file)
    fitting = [card.name for card in fitting_cards(checkpoint)]
    if not fitting:
        match_card(checkpoint, nearest_card(checkpoint))  # says what does not fit
    return backbone if backbone in fitting else fitting[0]


def _pulled(card: Downloadable) -> Path:
    return pull(
        card,
        cache_folder(),
        offline=bool(os.environ.get("MULE_OFFLINE")),
        on_progress=lambda done, total: advance(f"downloading {card.name}", done, total or done + 1),
    ).path


def _experiment(plan: OwnVideosPlan, backbone: str, weights: Path | None, used: OpenSetSides) -> Experiment:
    """Return the packaged experiment with the plan's places and settings; it is written beside the split."""
    places = {
        "data.root": str(plan.folder.absolute()),
        "data.num_known": used.train.labels.shape[1],
        "data.actors": str((plan.folder / _ACTORS).absolute()),
        "data.videos": str(plan.videos.absolute()),
        "backbone.name": backbone,
    }
    if weights is not None:
        places["backbone.weights"] = str(weights.absolute())
    settings = [f"{key}={json.dumps(value)}" for key, value in places.items()]
    if backbone == TINY:
        settings += ["backbone.options=", "backbone.frozen=false", "backbone.map_dropout=0.0"]
    elif backbone != DEFAULT_BACKBONE:
        clip = find_card(backbone).clip
        settings += [
            "backbone.options=",
            f"data.num_frames={clip.num_frames}",
            f"data.stride_frames={clip.stride_frames}",
        ]
    if backbone != TINY and find_spec("openvino") is not None:
        settings.append("backbone.runtime=openvino")
    experiment = load_experiment(PACKAGED / "own.toml", [*settings, *plan.settings])
    num_clips = len(used.train.actors.clips()[0])
    training = experiment.training
    few: list[str] = []
    if num_clips < training.batch_clips:  # an epoch has at least one batch
        few.append(f"training.batch_clips={num_clips}")
    epochs = enough_epochs(training.epochs, num_clips=num_clips, batch_clips=training.batch_clips)
    if epochs != training.epochs and not any("training.epochs" in each for each in plan.settings):
        few += [
            f"training.epochs={epochs}",
            f"training.validate_every_epochs={epochs // training.epochs}",
        ]
    if few:
        experiment = load_experiment(PACKAGED / "own.toml", [*settings, *plan.settings, *few])
    write_file(plan.folder / _EXPERIMENT, experiment_toml(experiment))
    return with_default_paths(experiment)
