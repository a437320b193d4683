"""The result of watching: everything about every actor at one key time, as plain values that check themselves.

header  ─ model, classes, source, threshold: once per file
moment  ─ one key time ─▶ actors ─▶ now      judged by this key time alone
                                 ├▶ so_far   judged by all key times of the track up to this one
                                 ├▶ decision idle, novel, known or unsure (`decide`)
                                 ╰▶ reasons  evidence, remembered actors, who or what contributed most
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mule.core.printable import is_unwritable
from mule.core.settings import Count, Share
from mule.novelty.odds import IDLE_FROM, in_words

if TYPE_CHECKING:
    from pandas import DataFrame
    from supervision import Detections

MOMENTS_FORMAT = "mule.moments"
VERSION = 1
P_VALUE = "p_value"

SAME_PLACE_PX = 0.01

Decision = Literal["known", "novel", "idle", "unsure"]
View = Literal["now", "so_far"]


@lru_cache(maxsize=4096)
def _require_plain(text: str) -> str:
    if not text.strip() or any(map(is_unwritable, text)):
        raise ValueError(
            f"a name must have letters and no control characters; got {text[:40]!r}. `printable` replaces them."
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
Amount = Annotated[float, Field(ge=0)]
Box = tuple[float, float, float, float]
SoundBox = Annotated[Box, AfterValidator(_require_box)]


class Record(BaseModel):
    """A frozen record that refuses unknown keys and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as dictionaries, lists and plain values, as it is written to JSON."""
        return self.model_dump(mode="json")

    def __dir__(self) -> list[str]:
        """Names of this package only; pydantic's stay usable but do not clutter completion."""
        names = {name for kind in type(self).__mro__ if issubclass(kind, Record) for name in vars(kind)}
        names |= set(type(self).model_fields)
        return sorted(name for name in names if not name.startswith(("_", "model_")))


class ActionOpinion(Record):
    """Belief, disbelief and uncertainty about one known action of an actor, and the evidence behind them."""

    action: Name
    belief: Share
    disbelief: Share
    uncertainty: Share
    probability: Share
    evidence_for: Amount
    evidence_against: Amount


class NoveltyScores(Record):
    """How novel an actor is, by each score. All rise with novelty except the p-value, which falls."""

    pe: Share
    ne: Share
    pne: Share
    belief: Share
    p_value: Share | None = None
    """The share of known actors at least as novel as this one; None if the model is not calibrated."""
    others: Mapping[Name, Share] = {}
    """Other scores of the model, by name."""

    def rising(self, score: str) -> float | None:
        """Return the novelty by one score, larger for more novel actors (1 − p for the p-value); None if it is missing.

        >>> NoveltyScores(pe=0.2, ne=0.5, pne=0.1, belief=0.3, p_value=0.25).rising("p_value")
        0.75
        """
        if score == P_VALUE:
            return None if self.p_value is None else 1 - self.p_value
        by_name = {"pe": self.pe, "ne": self.ne, "pne": self.pne, "belief": self.belief}
        return by_name.get(score, self.others.get(score))


class Judgement(Record):
    """The known actions that reach the header's least probability, likeliest first, and the novelty."""

    actions: tuple[ActionOpinion, ...]
    novelty: NoveltyScores
    idle: Share | None = None
    """How much the person resembles idle people rather than people who act; None if the model knows no idle people."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going on."""
        return self.idle is not None and self.idle > IDLE_FROM


class ActionEvidence(Record):
    """The amount of evidence for an action, or against it."""

    action: Name
    amount: Amount


class RememberedActor(Record):
    """An actor of the training data that resembles this one."""

    video: Name
    time_s: Amount
    actions: tuple[Name, ...]
    distance: Amount
    thumbnail: Name | None = None
    """The name of its picture among the bundle's thumbnails."""


class Contributor(Record):
    """The object, other actor or surroundings whose absence would have changed the judgement most."""

    kind: Literal["object", "actor", "context"]
    name: Name
    share: Share
    """Of all contributions."""
    found_by: Literal["attention", "leave_one_out"]
    track_id: int | None = None
    box_xyxy_unit: SoundBox | None = None


class Reasons(Record):
    """Why an actor was judged so: strongest evidence first, nearest remembered actors first."""

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
    """How many key times of the track `so_far` rests on."""
    now: Judgement
    so_far: Judgement
    decision: Decision
    reasons: Reasons = Reasons()

    @property
    def is_novel(self) -> bool:
        """Whether the actor does something the model was never taught."""
        return self.decision == "novel"

    @property
    def is_idle(self) -> bool:
        """Whether the actor does nothing now, such as standing by, before or after an act."""
        return self.decision == "idle"

    def judged(self, view: View) -> Judgement:
        """Return the judgement by this key time alone, or by the track so far."""
        return self.now if view == "now" else self.so_far


class Moment(Record):
    """One key time of one source. Boxes lie inside the frame, in pixels and as fractions of its size."""

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
                        f"boxes must lie in the frame of {self.cols} x {self.rows} pixels, the same in pixels and as "
                        f"fractions; actor {actor.track_id} has {actor.box_xyxy_px} and {actor.box_xyxy_unit}. Clip "
                        "them to the frame first."
                    )
        return self

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with one row per actor; see `exchange.moments_to_pandas`."""
        from mule.watching.exchange import moments_to_pandas

        return moments_to_pandas([self])

    def to_supervision(self) -> "Detections":
        """Return the actors as `supervision.Detections`; see `exchange.moment_to_supervision`."""
        from mule.watching.exchange import moment_to_supervision

        return moment_to_supervision(self)


class DecisionThreshold(Record):
    """An actor whose novelty lies above `value` is novel."""

    name: Name
    """Such as known-95."""
    score: Name
    """`pe`, `ne`, `pne`, `belief`, `p_value` (read as 1 − p, which rises with novelty), or another score of the model."""
    value: Share
    view: View = "so_far"
    """Whether the track so far decides, or each key time by itself."""
    meaning: Name
    """In words, such as "95 % of known actors pass"."""
    num_held_out: Annotated[int, Field(gt=0)] | None = None
    """How many known actors a p-value rests on: no statement is rarer than one of them. None without a p-value."""
    says_unsure: bool = False
    """Whether an actor without a probable action is `unsure`; in files of earlier versions such an actor was `known`."""


class ModelFacts(Record):
    """The model that watched."""

    name: Name
    fingerprint: Name


class SourceFacts(Record):
    """The source that was watched."""

    video: Name
    address: Name
    """Path, or address without user name, password and query."""
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
    """What all moments of a file have in common; its first line."""

    format: Literal["mule.moments"] = MOMENTS_FORMAT
    version: Literal[1] = VERSION
    model: ModelFacts
    classes: tuple[Name, ...] = Field(min_length=1)
    source: SourceFacts
    every_s: Annotated[float, Field(gt=0)]
    """Seconds from one key time to the next."""
    threshold: DecisionThreshold
    min_probability: Share
    """Known actions are reported when their probability is at least this."""

    @model_validator(mode="after")
    def _require_different_classes(self) -> "Header":
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes must have different names; got {list(self.classes)}.")
        return self


def novelty_of(actor: SeenActor, threshold: DecisionThreshold) -> float:
    """Return the number that is compared with the threshold; larger is more novel.

    Raises:
        ValueError: the actor has no such score.
    """
    novelty = actor.judged(threshold.view).novelty.rising(threshold.score)
    if novelty is None:
        raise ValueError(
            f"actor {actor.track_id} must have the score {threshold.score!r}, which decides; it has none."
        )
    return novelty


def novelty_in_words(novelty: float, threshold: DecisionThreshold) -> str:
    """Explain a number that `novelty_of` returned.

    >>> usual = DecisionThreshold(name="known-95", score=P_VALUE, value=0.95, meaning="95 % pass", num_held_out=2000)
    >>> novelty_in_words(0.9976, usual)
    'only 1 in 400 known actors looks this strange'
    """
    if threshold.score != P_VALUE:
        return f"{threshold.score} novelty {novelty:.3f}"
    if threshold.num_held_out is None:
        return f"more novel than {100 * novelty:.4g} % of known actors"
    return in_words(1 - novelty, num_held_out=threshold.num_held_out)


def decide(actor: SeenActor, threshold: DecisionThreshold) -> Decision:
    """Return the answer about an actor, the first that holds.

    idle     the actor resembles idle people more than people who act
    novel    the novelty lies above the threshold
    known    an action reaches the least probability that is shown
    unsure   none of these: no stranger than promised, and no action is probable
    """
    judgement = actor.judged(threshold.view)
    return answer(
        is_idle=judgement.is_idle,
        is_novel=novelty_of(actor, threshold) > threshold.value,
        has_action=bool(judgement.actions) or not threshold.says_unsure,
    )


def answer(*, is_idle: bool, is_novel: bool, has_action: bool) -> Decision:
    """Return the first answer that holds.

    >>> answer(is_idle=False, is_novel=False, has_action=False)
    'unsure'
    """
    if is_idle:
        return "idle"
    if is_novel:
        return "novel"
    return "known" if has_action else "unsure"


def problems_of(moment: Moment, header: Header) -> list[str]:
    """List, in words, where a moment disagrees with its header."""
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
                f"got {actor.decision!r} with novelty {novelty_of(actor, header.threshold):g}, where {expected!r} follows"
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
