"""From the options of `mule data split` to a split: which actions are taught, and which videos lie on which side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mule.core.errors import AnnotationError, RangeError
from mule.core.text_rows import read_names, read_pairs
from mule.data.convert.charades import read_class_names
from mule.data.split import partition
from mule.data.split.splits import (
    ClassSets,
    Policy,
    Rules,
    SideVideos,
    Split,
    listed,
    read_split,
    table_digest,
)
from mule.data.table.table import ActorTable, joined_tables

Z1AtTest = Literal["ignore", "known", "tags"]
DEFAULT_VAL_SHARE = 0.15


@dataclass(frozen=True)
class SplitPlan:
    """How a table is to be split; each field is an option of `mule data split`."""

    policy: Policy
    seed: int = 0
    name: str | None = None
    novel: Path | None = None
    class_groups: str = ":"
    """A CSV file with the columns action and group, or the mark that ends a group's name in an action's."""
    tags: str | None = None
    charades_classes: Path | None = None
    groups: str | None = None
    sides: str | None = None
    has_test_table: bool = False
    test_share: float = 0.25
    val_share: float | None = None
    mixed: Literal["drop", "keep"] = "drop"
    mixed_share: float = 0.5
    train_novel: Literal["drop", "unlabel"] = "drop"
    z1_at_test: Z1AtTest | None = None

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise RangeError(f"--policy must be one of {', '.join(get_args(Policy))}; got '{self.policy}'.")
        if (self.novel is not None) != (self.policy == "list"):
            raise RangeError("--novel: a file of novel actions goes with the policy list, and only with it.")
        if self.charades_classes is not None and self.policy != "paper":
            raise RangeError("--charades-classes: goes with the policy paper.")
        if self.tags is not None and self.policy not in ("random", "closed"):
            raise RangeError(
                f"--tags: goes with the policies random and closed; {self.policy} has sets of its own."
            )
        if self.tags is not None and self.z1_at_test not in (None, "tags"):
            raise RangeError("--tags: tags are all of Z1; leave --z1-at-test out.")
        if self.has_test_table and self.sides is not None:
            raise RangeError("--sides: give a second table or a column of sides, not both.")


def planned_split(
    plan: SplitPlan, actors: ActorTable, tested: ActorTable | None, *, table_name: str
) -> Split:
    """Divide the actions and the videos of a table as the plan says.

    Args:
        plan: how.
        actors: the table; with `tested`, that of training and validation.
        tested: the table of the test side, if it is another.
        table_name: what the split is called after, unless the plan names it.

    Raises:
        RangeError: the plan does not fit the table.
        AnnotationError: a file of groups, sides or names cannot be used.
    """
    whole = whole_table(actors, tested)
    classes = _class_sets(plan, whole.classes)
    group_of = {} if plan.groups is None else _value_of_each(plan.groups, whole.videos, "--groups")
    rules = _rules(plan)
    videos = (
        _given_sides(plan.sides, whole.videos)
        if plan.sides
        else _drawn_sides(actors, tested, classes, rules, plan.seed, group_of)
    )
    return Split(
        name=plan.name or f"{table_name}-{plan.policy}-{plan.seed}",
        policy=plan.policy,
        seed=plan.seed,
        table_digest=table_digest(whole),
        classes=classes,
        rules=rules,
        videos=videos,
        groups=group_of,
    )


def whole_table(actors: ActorTable, tested: ActorTable | None) -> ActorTable:
    """Join the tables of training and test, if they are two."""
    return actors if tested is None else joined_tables([actors, tested])


def pretraining_labels(path: Path | None) -> tuple[str, ...]:
    """Read the classes that the backbone was pre-trained on; none without a file."""
    return () if path is None else read_names(path, of="the classes of the pre-training")


def video_files(folder: Path | None, videos: Sequence[str]) -> dict[str, Path]:
    """Find the file of each video that has one: of exactly its name, or of its name and a suffix."""
    if folder is None:
        return {}
    found: dict[str, Path] = {}
    for video in videos:
        candidates = [folder / video, *sorted((folder / video).parent.glob(f"{Path(video).name}.*"))]
        file = next((path for path in candidates if path.is_file()), None)
        if file is not None:
            found[video] = file
    return found


def _class_sets(plan: SplitPlan, classes: tuple[str, ...]) -> ClassSets:
    if plan.tags is None:
        return _partition(plan, classes)
    actions, tags = partition.told_apart(classes, plan.tags)
    return partition.beside_tags(_partition(plan, actions), tags)


def _partition(plan: SplitPlan, classes: tuple[str, ...]) -> ClassSets:
    match plan.policy:
        case "paper":
            names = None if plan.charades_classes is None else read_class_names(plan.charades_classes)
            return partition.paper_partition(classes, charades_names=names)
        case "random":
            return partition.random_partition(classes, seed=plan.seed)
        case "grouped":
            return partition.grouped_partition(_group_of(classes, plan.class_groups), seed=plan.seed)
        case "list":
            return partition.read_partition(plan.novel or Path(), classes, seed=plan.seed)
        case "closed":
            return partition.closed_partition(classes)


def _group_of(classes: tuple[str, ...], file_or_mark: str) -> dict[str, str]:
    if len(file_or_mark) == 1:
        return partition.group_by_prefix(classes, file_or_mark)
    pairs = read_pairs(Path(file_or_mark), "action", "group")
    return _of_all(classes, pairs, f"{file_or_mark}: every action")


def _rules(plan: SplitPlan) -> Rules:
    is_drawn = plan.sides is None and not plan.has_test_table
    return Rules(
        mixed=plan.mixed,
        mixed_share=plan.mixed_share,
        train_novel=plan.train_novel,
        z1_at_test=_z1_at_test(plan),
        sides="drawn" if is_drawn else "given",
        val_share=_val_share(plan),
        test_share=plan.test_share if is_drawn else 0.0,
        # the file's name alone: a digest must not depend on the machine
        groups_from="" if plan.groups is None else Path(plan.groups).name,
    )


def _z1_at_test(plan: SplitPlan) -> Z1AtTest:
    if plan.tags is not None:
        return "tags"
    return plan.z1_at_test or ("ignore" if plan.policy == "paper" else "known")


def _val_share(plan: SplitPlan) -> float:
    if plan.sides is not None:
        return 0.0
    if plan.val_share is not None:
        return plan.val_share
    return 0.0 if plan.has_test_table else DEFAULT_VAL_SHARE


def _drawn_sides(
    actors: ActorTable,
    tested: ActorTable | None,
    classes: ClassSets,
    rules: Rules,
    seed: int,
    group_of: dict[str, str],
) -> SideVideos:
    drawn = partition.drawn_sides(
        actors, classes, val_share=rules.val_share, test_share=rules.test_share, seed=seed, groups=group_of
    )
    return drawn if tested is None else SideVideos(drawn.train, drawn.val, tuple(sorted(tested.videos)))


def _given_sides(sides: str, videos: tuple[str, ...]) -> SideVideos:
    if sides.endswith(".toml"):
        side_of = read_split(Path(sides)).videos.side_of()
    else:
        side_of = read_pairs(*_column(sides, "--sides"))
    return partition.given_sides({video: side_of[video] for video in videos if video in side_of})


def _value_of_each(place: str, videos: tuple[str, ...], option: str) -> dict[str, str]:
    """Read the column's value for each of these videos."""
    return _of_all(videos, read_pairs(*_column(place, option)), f"{place}: every video")


def _column(place: str, option: str) -> tuple[Path, str, str]:
    """Parse FILE.csv:COLUMN into the file, the column of names and the column of values."""
    file, mark, column = place.rpartition(":")
    if not mark or not file or not column:
        raise RangeError(f"{option}: must be a file and a column, VIDEOS.csv:COLUMN; got '{place}'.")
    return Path(file), "video", column


def _of_all(names: tuple[str, ...], value_of: dict[str, str], every: str) -> dict[str, str]:
    """Return the value of each name; `every` begins the error if some have none."""
    without = [name for name in names if name not in value_of]
    if without:
        raise AnnotationError(f"{every} of the table must have a row; {listed(without)} have none.")
    return {name: value_of[name] for name in names}
