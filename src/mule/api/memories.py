"""The memory of a trained run: build it from the run's own actors, and find examples for it in a table."""

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mule.api.own_people import people_with_boxes, require_readable
from mule.core.errors import RangeError
from mule.data.table.reading import read_actor_table
from mule.data.table.writing import write_actor_table
from mule.inference.remembering import remembered_of
from mule.inference.running import OutputsOf, weights_digest
from mule.inference.sides import TRAIN, VAL
from mule.inference.table_actors import seen_in_table, videos_beside
from mule.memory.building import SeenActors, known_among, left_out_sentence, usable_among
from mule.memory.taught import Remembered
from mule.training.data import Noted
from mule.training.run_folder import experiment_of
from mule.watching.engine.bundle import is_own_detector, packaged_folder
from mule.watching.engine.bundle_card import BUNDLE, read_bundle_card


@dataclass(frozen=True)
class Examples:
    """A table of example actors, and where their videos lie."""

    table: Path
    videos: Path | None = None
    """By default `videos/` beside the table, or the table's own folder."""
    settings: Sequence[str] = ()
    """Where the data of the run lies now, such as `data.root=DIR`."""


def model_fingerprint(run_dir: Path) -> str:
    """Return the SHA-256 of a run's weights, by which a memory names its model."""
    packaged = packaged_folder(run_dir)
    if packaged is not None:
        raise RangeError(
            f"{run_dir}: a model of the package cannot be changed. Copy {packaged} to a folder of your own, and use "
            "that folder here and with `mule watch --model`."
        )
    return weights_digest(run_dir)


def remember_run(run_dir: Path, settings: Sequence[str] = (), *, noted: Noted = lambda _: None) -> Remembered:
    """Build a memory of a run's training actors and calibrate it on the known actors of its validation side.

    Actors that do no known action are left out on both sides.
    """
    outputs = OutputsOf(run_dir, experiment_of(run_dir, settings))
    train, val = (outputs.on(side, noted=noted) for side in (TRAIN, VAL))
    return remembered_of(train, val, model=model_fingerprint(run_dir))


def exemplars_in_table(
    run_dir: Path, remembered: Remembered, action: str, examples: Examples, *, noted: Noted = lambda _: None
) -> SeenActors:
    """Return the actors of a table that an action can be taught from.

    Rows that do not do the action are ignored. Rows from videos of held-out actors are left out, with a note.
    """
    with _with_people(run_dir, examples, noted) as found:
        actors = seen_in_table(run_dir, found.table, found.videos, settings=examples.settings, doing=action)
    _note_left_out(remembered, actors.actors.places.videos(), noted)
    return usable_among(actors.at_known(remembered), remembered.held_out, source=examples.table)


def known_in_table(
    run_dir: Path, remembered: Remembered, examples: Examples, *, noted: Noted = lambda _: None
) -> SeenActors:
    """Return the actors of a table that do a remembered action; a note says who cannot be added to the memory."""
    with _with_people(run_dir, examples, noted) as found:
        actors = seen_in_table(run_dir, found.table, found.videos, settings=examples.settings)
    known = known_among(actors.at_known(remembered), remembered.memory, source=examples.table)
    _note_left_out(remembered, known.places.videos(), noted)
    return known


@contextmanager
def _with_people(run_dir: Path, examples: Examples, noted: Noted) -> Generator[Examples]:
    """Yield the examples with a box in every row: where a bundle's table has none, its detector finds the people."""
    table = read_actor_table(examples.table)
    if table.has_box.all() or not (run_dir / BUNDLE).is_file():
        yield examples
        return
    folder = examples.videos or videos_beside(examples.table)
    card = read_bundle_card(run_dir)
    detector = str(run_dir / card.detector) if is_own_detector(card.detector) else card.detector
    with tempfile.TemporaryDirectory() as scratch:
        boxed = Path(scratch) / examples.table.with_suffix(".csv").name
        found = people_with_boxes(
            table, require_readable(table, folder), detector=detector, partial=Path(scratch) / "partial"
        )
        for sentence in found.sentences:
            noted(sentence)
        write_actor_table(found.actors, boxed)
        yield replace(examples, table=boxed, videos=folder)


def _note_left_out(remembered: Remembered, videos: Sequence[str], noted: Noted) -> None:
    sentence = left_out_sentence(remembered.held_out, videos)
    if sentence is not None:
        noted(sentence)
