"""Composites within each side of a split: all tiles of a composite come from one side.

Only actors that the split uses become tiles, so actors with a novel action never appear in training or
validation. At test time, known and novel actors can share a composite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mule.core.errors import RangeError
from mule.data.split.sides import OpenSetSides
from mule.data.split.splits import SIDES, Side, SideVideos, Split, table_digest
from mule.data.table.table import ActorTable
from studies.compose.composites import Composite, Sources, draw_composites


@dataclass(frozen=True)
class Drawing:
    """How composites are drawn from each side; see `draw_composites`."""

    num_tiles: int
    seed: int = 0
    max_uses: int = 1


def draw_in_sides(sources: Sources, sides: OpenSetSides, drawing: Drawing) -> dict[Side, list[Composite]]:
    """Draw as many composites as each side allows, named after their side. A side without actors has none.

    Raises:
        RangeError: a side has actors, but too few for one composite.
    """
    rows = {side: set(getattr(sides, side).rows.tolist()) for side in SIDES}
    return {side: _drawn(side, sources, rows[side], drawing) for side in SIDES if rows[side]}


def _drawn(side: Side, sources: Sources, rows: set[int], drawing: Drawing) -> list[Composite]:
    own = [source for source in sources.usable if source.row in rows]
    try:
        drawn = draw_composites(
            own, num_tiles=drawing.num_tiles, seed=drawing.seed, max_uses=drawing.max_uses
        )
    except RangeError as error:
        raise RangeError(f"the {side} side: {error}") from None
    return [replace(each, name=f"{side}-{each.name}") for each in drawn]


def split_of_composites(
    split: Split, composed: ActorTable, composites: Mapping[Side, Sequence[Composite]], *, num_tiles: int
) -> Split:
    """Return the split of a table of composites, each on the side of its tiles; actions and rules stay.

    Args:
        split: the split of the table that tiles come from.
        composed: the table of composites, read back from its file.
        composites: the composites of each side; those missing from `composed` could not be made and are left
            out.
        num_tiles: clips per composite.
    """
    there = set(composed.videos)
    names = {
        side: tuple(sorted(each.name for each in composites.get(side, ()) if each.name in there))
        for side in SIDES
    }
    return replace(
        split,
        name=f"{split.name}-tiles{num_tiles}",
        table_digest=table_digest(composed),
        rules=replace(split.rules, sides="given", val_share=0.0, test_share=0.0, groups_from=""),
        videos=SideVideos(**names),
        groups={},
    )
