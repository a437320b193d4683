"""The result of measuring what `mule watch` said about people, and the same in words.

A *look* is one person at one key time at which the truth is known. By the truth, a look is

    novel       the person does an action that the model does not know
    known       only actions that it knows
    idle        no action
    unlisted    somebody is seen whom the truth does not name

A person is novel with a novel look, known with a known look and no novel one, and idle otherwise.
"""

from typing import Literal

from mule.evaluation.following import LONGEST_REACH_S
from mule.evaluation.open_set import Result

LookKind = Literal["known", "novel", "idle", "unlisted"]
LOOK_KINDS: tuple[LookKind, ...] = ("known", "novel", "idle", "unlisted")

WATCHED_CONVENTION = (
    "A labelled time speaks for the key times around it, half the way to the labelled times before and after it and at "
    f"most {LONGEST_REACH_S:g} s; {{elsewhere}}. At each key time, seen people are paired one to one with true people: a "
    "person first keeps the track they had, then the total IoU is largest; paired boxes have an IoU of at least "
    "{min_iou:g}. flagged, named and wrongly named are shares of the looks or people seen. named: an action is shown (its "
    "probability is at least {min_probability:g}); wrongly: none of the actions shown is true. Precision and recall count "
    "actions of all people in the table; who was missed counts against recall. mAP ranks known people seen, mAP of "
    "everybody all people in the table; actions that were not reported, and people missed, rank last. A novel act lasts "
    "while the person does something novel; the time until it is flagged is counted from its first label. A switch: a "
    "person is seen as another track than the last time."
)


class LookCounts(Result):
    """Looks of one kind."""

    num: int
    num_seen: int
    num_flagged: int
    num_named: int
    num_wrongly_named: int
    seconds: float
    """What the looks cover, each as long as the time between key times."""


class PeopleCounts(Result):
    """People of one kind."""

    num: int
    num_seen: int
    num_flagged: int
    """Flagged at some look, whatever they did then."""
    num_flagged_in_act: int
    """Flagged at some look at which they did something novel."""


class NovelActs(Result):
    """Novel acts: how many were flagged before they ended, and after how long."""

    num: int
    num_flagged: int
    median_delay_s: float | None
    """Half of the flagged acts were flagged within this time; None if none was."""


class Naming(Result):
    """How well known actions were named; None where nobody was seen or did anything."""

    mean_ap: float | None
    mean_ap_everybody: float | None
    precision: float | None
    recall: float | None
    mean_ap_by_person: float | None
    """Each known person once, with the largest probability of each action."""
    precision_by_person: float | None
    recall_by_person: float | None


class Identities(Result):
    """How well people were followed over time."""

    num_people: int
    num_never_seen: int
    num_tracks: int
    num_tracks_of_nobody: int
    """Tracks that were never paired with a person of the table."""
    num_switches: int
    num_on_own_track: int
    """Looks of seen people as a track that belongs, by majority of its looks, to that person."""


class KnownActionWatched(Result):
    """How well one known action was named."""

    num: int
    num_seen: int
    average_precision: float | None
    precision: float | None
    recall: float | None


class NovelActionWatched(Result):
    """Who did one novel action, and how many of them were flagged while they did it."""

    num: int
    num_seen: int
    num_flagged: int
    num_people: int | None
    num_people_flagged: int | None


class WatchedResult(Result):
    """What `mule watch` said about people, against a table of who did what when."""

    num_videos: int
    num_not_watched: int = 0
    """Videos of the table that nobody watched."""
    num_key_times: int
    num_judged_times: int
    looks: dict[LookKind, LookCounts]
    people: dict[LookKind, PeopleCounts] | None
    """None if the table does not tell who is who."""
    acts: NovelActs | None
    naming: Naming
    identities: Identities | None
    known_actions: dict[str, KnownActionWatched]
    novel_actions: dict[str, NovelActionWatched]
    convention: str


def watched_in_words(result: WatchedResult) -> str:
    """Return what a practitioner wants to know, as one paragraph."""
    return " ".join([*_flagged_in_words(result), *_named_in_words(result), _followed_in_words(result)])


def percent(part: int, whole: int) -> str:
    """Return a share as a percentage; a dash where there is nothing to share.

    >>> percent(1, 24), percent(3, 3), percent(0, 0)
    ('4.17 %', '100 %', '–')
    """
    return f"{100 * part / whole:.3g} %" if whole else "–"


def _flagged_in_words(result: WatchedResult) -> list[str]:
    sentences: list[str] = []
    if result.people is not None and result.acts is not None:
        known, novel, acts = result.people["known"], result.people["novel"], result.acts
        said = [
            f"{percent(num_flagged, who.num_seen)} of {words} ({num_flagged} of {who.num_seen})"
            for who, num_flagged, words in (
                (known, known.num_flagged, "known people were flagged as novel at some time"),
                (novel, novel.num_flagged_in_act, "novel people were flagged while they did something novel"),
            )
            if who.num_seen
        ]
        sentences.append(f"{', and '.join(said) or 'Nobody was seen who did something'}.")
        if acts.median_delay_s is not None:
            sentences.append(
                f"{acts.num_flagged} of {acts.num} novel acts were flagged before they ended, half of these within "
                f"{acts.median_delay_s:.1f} s."
            )
    looks = [(kind, result.looks[kind]) for kind in LOOK_KINDS if result.looks[kind].num_seen]
    if looks:
        shares = [f"{percent(each.num_flagged, each.num_seen)} of {kind}" for kind, each in looks]
        sentences.append(f"Look by look, {', '.join(shares)} people were flagged.")
    return sentences


def _named_in_words(result: WatchedResult) -> list[str]:
    naming, idle = result.naming, result.looks["idle"]
    sentences: list[str] = []
    if naming.mean_ap is not None:
        precision = "–" if naming.precision is None else f"{100 * naming.precision:.3g} %"
        recall = "–" if naming.recall is None else f"{100 * naming.recall:.3g} %"
        sentences.append(
            f"Known actions were named with mAP {naming.mean_ap:.3f}; {precision} of the actions shown were right, and "
            f"{recall} of the known actions done were shown."
        )
    if idle.num_seen:
        sentences.append(
            f"Idle people were named with an action in {percent(idle.num_named, idle.num_seen)} of looks."
        )
    return sentences


def _followed_in_words(result: WatchedResult) -> str:
    listed = [result.looks[kind] for kind in ("known", "novel", "idle")]
    num, num_seen = sum(each.num for each in listed), sum(each.num_seen for each in listed)
    missed = f"{percent(num - num_seen, num)} of the looks at people of the table were missed"
    extra = f"{result.looks['unlisted'].num} looks show somebody the table does not name"
    switches = (
        ""
        if result.identities is None
        else f", people changed their track {result.identities.num_switches} times"
    )
    return f"{missed}{switches}, and {extra}."
