"""What watching hands over: everything about every actor at one key time, as plain values that check themselves.

header  ─ model, classes, source, threshold: once per file
moment  ─ one key time ─▶ actors ─▶ now      judged by this key time alone
                                 ├▶ so_far   judged by all key times of the track up to this one
                                 ├▶ decision known or novel, by the header's threshold
                                 ╰▶ reasons  evidence, remembered actors, what contributed most
"""

import unicodedata
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mule.novelty.odds import in_words

FORMAT = "mule.moments"
VERSION = 1
P_VALUE = "p_value"

SAME_PLACE_PX = 0.01

Decision = Literal["known", "novel"]
View = Literal["now", "so_far"]


def plain_name(text: str) -> str:
    r"""The text with whatever no file format can carry shown as �: control characters and halves of characters.

    >>> plain_name("lobby\n1.mp4")
    'lobby�1.mp4'
    """
    return "".join("�" if _is_unwritable(letter) else letter for letter in text)


def _is_unwritable(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs") or letter in "\ufffe\uffff"


def _require_plain(text: str) -> str:
    if not text.strip() or any(map(_is_unwritable, text)):
        raise ValueError(
            f"a name must have letters and no control characters; got {text[:40]!r}. See plain_name."
        )
    return text


def _require_box(box: "Box") -> "Box":
    if not (box[0] < box[2] and box[1] < box[3]):
        raise ValueError(f"a box must have x2 > x1 and y2 > y1; got {box}.")
    return box


def _require_rate(text: str) -> str:
    try:
        is_rate = Fraction(text) > 0
    except (ValueError, ZeroDivisionError):
        is_rate = False
    if not is_rate:
        raise ValueError(f"a frame rate must be a fraction above 0, such as 25 or 30000/1001; got {text!r}.")
    return text


Name = Annotated[str, AfterValidator(_require_plain)]
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Box = tuple[float, float, float, float]
SoundBox = Annotated[Box, AfterValidator(_require_box)]


class Record(BaseModel):
    """A frozen record that refuses keys it does not know and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ActionOpinion(Record):
    """What is held of one known action of an actor."""

    action: Name
    belief: Share
    disbelief: Share
    uncertainty: Share
    probability: Share
    evidence_for: Amount
    evidence_against: Amount


class NoveltyScores(Record):
    """How novel an actor is, by each score; all rise with novelty but the p-value, which falls."""

    pe: Share
    ne: Share
    pne: Share
    belief: Share
    p_value: Share | None = None
    """Share of known actors at least as novel as this one; None where the model was not calibrated."""
    others: Mapping[Name, Share] = {}
    """Further scores of the model, by name."""

    def rising(self, score: str) -> float | None:
        """The novelty by one score, larger for more novel actors (1 − p for the p-value); None where there is none.

        >>> NoveltyScores(pe=0.2, ne=0.5, pne=0.1, belief=0.3, p_value=0.25).rising("p_value")
        0.75
        """
        if score == P_VALUE:
            return None if self.p_value is None else 1 - self.p_value
        by_name = {"pe": self.pe, "ne": self.ne, "pne": self.pne, "belief": self.belief}
        return by_name.get(score, self.others.get(score))


class Judgement(Record):
    """Known actions above the header's least probability, likeliest first, and novelty."""

    actions: tuple[ActionOpinion, ...]
    novelty: NoveltyScores


class ActionEvidence(Record):
    """How much speaks for an action, or against it."""

    action: Name
    amount: Amount


class RememberedActor(Record):
    """An actor of the training data that resembles the one seen."""

    video: Name
    time_s: Amount
    actions: tuple[Name, ...]
    distance: Amount
    thumbnail: Name | None = None
    """A PNG or JPEG file, by its path inside the folder of the memory."""


class Contributor(Record):
    """The object, other actor or surroundings without which the judgement would have changed most."""

    kind: Literal["object", "actor", "context"]
    name: Name
    share: Share
    """Of all contributions."""
    found_by: Literal["attention", "leave_one_out"]
    track_id: int | None = None
    box_xyxy_unit: SoundBox | None = None


class Reasons(Record):
    """Why: the strongest evidence first, the nearest remembered actors first."""

    evidence_for: tuple[ActionEvidence, ...] = ()
    evidence_against: tuple[ActionEvidence, ...] = ()
    remembered: tuple[RememberedActor, ...] = ()
    contributor: Contributor | None = None


class SeenActor(Record):
    """One actor at one key time."""

    track_id: Annotated[int, Field(ge=0)]
    box_xyxy_px: SoundBox
    box_xyxy_unit: SoundBox
    detection_score: Share = 1.0
    num_looks: Count
    """Key times of the track up to this one: what `so_far` rests on."""
    now: Judgement
    so_far: Judgement
    decision: Decision
    reasons: Reasons = Reasons()

    @property
    def is_novel(self) -> bool:
        """Whether the actor was decided to do nothing that was taught."""
        return self.decision == "novel"

    def judged(self, view: View) -> Judgement:
        """The judgement by this key time alone, or by the track so far."""
        return self.now if view == "now" else self.so_far


class Moment(Record):
    """One key time of one source. Boxes lie inside the frame, in pixels of it and in parts of it."""

    video: Name
    key_time_s: Amount
    rows: Count
    cols: Count
    actors: tuple[SeenActor, ...]

    @model_validator(mode="after")
    def _require_places(self) -> "Moment":
        ids = [actor.track_id for actor in self.actors]
        if len(set(ids)) != len(ids):
            raise ValueError(f"an actor must be in one place at a time; got the track ids {ids}.")
        for actor in self.actors:
            for px, unit, side in zip(
                actor.box_xyxy_px, actor.box_xyxy_unit, 2 * (self.cols, self.rows), strict=True
            ):
                if not 0 <= unit <= 1 or abs(px - unit * side) > SAME_PLACE_PX:
                    raise ValueError(
                        f"boxes must lie in the frame of {self.cols} x {self.rows} pixels, the same in pixels and in "
                        f"parts; actor {actor.track_id} has {actor.box_xyxy_px} and {actor.box_xyxy_unit}. Clip them "
                        "to the frame first."
                    )
        return self


class Threshold(Record):
    """Whose novelty lies above `value` is novel."""

    name: Name
    """Such as known-95."""
    score: Name
    """`pe`, `ne`, `pne`, `belief`, `p_value` (read as 1 − p, which rises with novelty), or another of the model."""
    value: Share
    view: View = "so_far"
    """Whether the track so far decides, or each key time for itself."""
    meaning: Name
    """In words, such as: 95 % of known actors pass."""
    num_held_out: Annotated[int, Field(gt=0)] | None = None
    """How many known actors a p-value rests on; nothing rarer than one of them is said. None where there is none."""


class ModelFacts(Record):
    """Which model watched."""

    name: Name
    fingerprint: Name


class SourceFacts(Record):
    """What was watched."""

    video: Name
    address: Name
    """Path or address, without user name and password."""
    rows: Count
    cols: Count
    frame_rate: Annotated[str, AfterValidator(_require_rate)]
    """Frames per second, exactly, as a fraction: 25 or 30000/1001."""
    duration_s: Amount | None = None
    """None for a live stream."""

    @property
    def rate(self) -> Fraction:
        """Frames per second."""
        return Fraction(self.frame_rate)


class Header(Record):
    """What all moments of a file share; its first line."""

    format: Literal["mule.moments"] = FORMAT
    version: Literal[1] = VERSION
    model: ModelFacts
    classes: tuple[Name, ...] = Field(min_length=1)
    source: SourceFacts
    every_s: Annotated[float, Field(gt=0)]
    """From one key time to the next."""
    threshold: Threshold
    min_probability: Share
    """From which a known action is said."""

    @model_validator(mode="after")
    def _require_different_classes(self) -> "Header":
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes must have different names; got {list(self.classes)}.")
        return self


def novelty_of(actor: SeenActor, threshold: Threshold) -> float:
    """The number the threshold is held against; larger is more novel.

    Raises:
        ValueError: the actor has no such score.
    """
    novelty = actor.judged(threshold.view).novelty.rising(threshold.score)
    if novelty is None:
        raise ValueError(
            f"actor {actor.track_id} must have the score {threshold.score!r}, by which is decided; it has none."
        )
    return novelty


def said_of(novelty: float, threshold: Threshold) -> str:
    """What a number that `novelty_of` gave means to people.

    >>> usual = Threshold(name="known-95", score=P_VALUE, value=0.95, meaning="95 % pass", num_held_out=2000)
    >>> said_of(0.9976, usual)
    'only 1 in 400 known actors looks this strange'
    """
    if threshold.score != P_VALUE:
        return f"{threshold.score} novelty {novelty:.3f}"
    if threshold.num_held_out is None:
        return f"more novel than {100 * novelty:.4g} % of known actors"
    return in_words(1 - novelty, num_held_out=threshold.num_held_out)


def decide(actor: SeenActor, threshold: Threshold) -> Decision:
    """Novel if the novelty lies above the threshold, else known."""
    return "novel" if novelty_of(actor, threshold) > threshold.value else "known"


def problems_of(moment: Moment, header: Header) -> list[str]:
    """Where a moment disagrees with its header, in words."""
    problems: list[str] = []
    if moment.video != header.source.video:
        problems.append(f"the video must be {header.source.video!r}; got {moment.video!r}")
    for actor in moment.actors:
        unknown = sorted(_named_actions(actor) - set(header.classes))
        if unknown:
            problems.append(f"actor {actor.track_id}: actions must be among the classes; {unknown} are not")
        try:
            expected = decide(actor, header.threshold)
        except ValueError as error:
            problems.append(str(error).removesuffix("."))
            continue
        if actor.decision != expected:
            problems.append(
                f"actor {actor.track_id}: the decision must follow from the threshold {header.threshold.value:g}; "
                f"got {actor.decision!r} with novelty {novelty_of(actor, header.threshold):g}"
            )
    return problems


def _named_actions(actor: SeenActor) -> set[str]:
    opinions: Iterable[ActionOpinion | ActionEvidence] = (
        *actor.now.actions,
        *actor.so_far.actions,
        *actor.reasons.evidence_for,
        *actor.reasons.evidence_against,
    )
    return {opinion.action for opinion in opinions}
