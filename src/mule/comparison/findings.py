"""What the rows of a comparison found, under the names of the methods they are trials of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mule.comparison.rows import Contestant, Row
from mule.core.config import ConfigError
from mule.inference.results import SideResult
from mule.inference.score_rules import JUDGED_BY
from mule.systems.catalogue import find_system

OURS = "mule"
USUAL_REFERENCE = "bce-aco-r"


def method_names(contestants: Sequence[Contestant]) -> dict[str, str]:
    """What each experiment is called in tables: its system, where no other experiment has the same."""
    systems = [each.experiment.system for each in contestants]
    return {
        each.name: each.experiment.system if systems.count(each.experiment.system) == 1 else each.name
        for each in contestants
    }


def require_methods(methods: Mapping[str, str], against: str | None, judged_by: Mapping[str, str]) -> None:
    """Whoever is named is one of the methods.

    Raises:
        ConfigError: somebody is not.
    """
    named = [*judged_by, *([] if against is None else [against])]
    unknown = [name for name in named if name not in methods.values()]
    if unknown:
        raise ConfigError(f"a method must be one of {', '.join(methods.values())}; got {', '.join(unknown)}.")


@dataclass(frozen=True)
class FinishedRow:
    """A row, the method it is a trial of, and what it found."""

    row: Row
    method: str
    results: Mapping[str, SideResult]


@dataclass(frozen=True)
class Findings:
    """All that the rows of a comparison found."""

    rows: tuple[FinishedRow, ...]
    reference: str
    """The method that others are compared with."""
    judged_by: Mapping[str, str]
    """The one score by which each method is compared; chosen before any outcome."""

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """In the order in which they were given."""
        return tuple(dict.fromkeys(each.method for each in self.rows))

    @property
    def tests(self) -> tuple[str, ...]:
        """The sides that known and novel actors are told apart on; the first is the one of the main table."""
        return self.rows[0].row.sides[1:]

    def tells_apart(self, side: str) -> bool:
        """Whether the side has known and novel actors, in every row; else recognition alone can be compared."""
        sides = [each.results[side] for each in self.rows]
        return all(side.num_known and side.num_novel for side in sides)

    def of(self, method: str) -> tuple[FinishedRow, ...]:
        """The trials of a method."""
        return tuple(each for each in self.rows if each.method == method)


def findings_of(
    rows: Sequence[tuple[Row, Mapping[str, SideResult]]],
    methods: Mapping[str, str],
    *,
    against: str | None = None,
    judged_by: Mapping[str, str] | None = None,
) -> Findings:
    """What finished rows found, under the names of their methods.

    Args:
        rows: with the results of each.
        methods: the method of each contestant.
        against: the method others are compared with; None is `bce-aco-r`, or the first where there is none.
        judged_by: the score of a method, where it is not the one it decides by or its kind of evidence is judged by.

    Raises:
        ConfigError: there is no such method, or it has no such score.
    """
    finished = tuple(FinishedRow(row, methods[row.contestant], results) for row, results in rows)
    names = list(dict.fromkeys(each.method for each in finished))
    asked = dict(judged_by or {})
    require_methods(methods, against, asked)
    usual = USUAL_REFERENCE if USUAL_REFERENCE in names else next(iter(names), "")
    chosen: dict[str, str] = {}
    for each in finished:
        test = each.results[each.row.sides[1]]
        own = find_system(each.row.experiment.system).decides_by
        chosen[each.method] = asked.get(each.method) or own or JUDGED_BY[test.kind]
        if chosen[each.method] not in test.scores and test.num_novel:
            raise ConfigError(
                f"{each.method} must be judged by a score it has; {chosen[each.method]} was left out: "
                f"{test.left_out.get(chosen[each.method], 'nobody asked for it')}. It has {', '.join(test.scores)}."
            )
    return Findings(finished, against if against in names else usual, chosen)
