"""CAVIAR as one table: people followed frame by frame, each with several labels, from XML and from rows."""

from fractions import Fraction

import numpy as np
import pytest
from study_commands import assert_refused, assert_same, assert_survives_the_file, run_study, table_of, written

from mule.core.errors import AnnotationError
from mule.data.convert.conversion import ActionRule, BoxSettings
from mule.data.table.name_files import read_pairs
from mule.data.table.reading import read_actor_table
from studies.convert.__main__ import app
from studies.convert.caviar import KINDS, actors_from_caviar, sequence_of

HEADER = "video,time_s,x1,y1,x2,y2,action,person_id\n"
ROWS = (
    "Walk1_0010_0030.mp4,0.00,0.1,0.2,0.3,0.4,movement:walking,Walk1_0\n"
    "Walk1_0010_0030.mp4,0.00,0.1,0.2,0.3,0.4,context:walking,Walk1_0\n"
    "Walk1_0010_0030.mp4,0.00,0.5,0.2,0.7,0.4,movement:inactive,Walk1_1\n"
    "Walk1_0010_0030.mp4,0.04,0.1,0.2,0.3,0.4,movement:walking,Walk1_0\n"
)


def hypothesis(movement, role, context, situation):
    labels = (("movement", movement), ("role", role), ("context", context), ("situation", situation))
    said = "".join(f'<{kind} evaluation="1.0">{label}</{kind}>\n' for kind, label in labels)
    return f'<hypothesislist><hypothesis evaluation="1.0" id="1" prev="1.0">\n{said}</hypothesis></hypothesislist>\n'


WALKS = hypothesis("walking", "walker", "drop down", "moving")
STANDS = hypothesis("inactive", "walker", "none", "inactive")
FIGHTS = hypothesis("movement", "fighters", "fighting", "split up")
HEAD = '<head evaluation="1" gaze="347" occluded="no" size="3" xc="54" yc="191"/>'
XML = f"""<?xml version="1.0" encoding="UTF-8"?>
<dataset name="ignored">
    <frame number="0">
        <objectlist/>
        <grouplist/>
    </frame>
    <frame number="50">
        <objectlist>
            <object id="1">
                <orientation>170</orientation>
                <box h="28.8" w="38.4" xc="96" yc="144"/>
                <body>{HEAD}</body>
                <appearance>visible</appearance>
                {WALKS}
            </object>
            <object id="2">
                <box h="14.4" w="19.2" xc="192" yc="72"/>
                <appearance>appear</appearance>
                {STANDS}
            </object>
        </objectlist>
        <grouplist>
            <group id="0">
                <box h="100" w="100" xc="150" yc="150"/>
                <members>1,7</members>
                <appearance>visible</appearance>
                {FIGHTS}
            </group>
        </grouplist>
    </frame>
</dataset>
"""
GOOD = XML.replace("1,7", "1")
ALL = ActionRule(from_class=False, from_attributes=True)


def settings(*kinds, **others):
    rule = ActionRule(False, True, frozenset(kinds)) if kinds else ALL
    return BoxSettings(rule, **others)


def test_objects_of_the_published_files_are_actors_and_groups_speak_of_their_members(tmp_path):
    table, report = actors_from_caviar([written(tmp_path, "fcgt.xml", GOOD)], settings())
    first = (
        "context:drop_down;group_context:fighting;group_movement:movement;group_role:fighters;group_situation:split_up;"
        "movement:walking;role:walker;situation:moving"
    )
    expected = table_of(
        ("fcgt", 2.0, (0.2, 0.45, 0.3, 0.55), first, "1"),
        ("fcgt", 2.0, (0.475, 0.225, 0.525, 0.275), "movement:inactive;role:walker;situation:inactive", "2"),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("boxes", 2, 2)


def test_kinds_rate_size_and_name_can_be_said(tmp_path):
    wanted = settings("context", frame_rate=Fraction(50), size_px=(768, 576), video="Chase.mpg")
    table, report = actors_from_caviar([written(tmp_path, "fcgt.xml", GOOD)], wanted)
    assert (table.videos, table.time_s.tolist(), table.classes) == (
        ("Chase.mpg",),
        [1.0],
        ("context:drop_down",),
    )
    assert table.boxes_xyxy_unit[0].tolist() == pytest.approx([0.1, 0.225, 0.15, 0.275])
    assert report.dropped == {"without_an_action": 1}


def test_rows_of_one_person_and_time_are_one_actor(tmp_path):
    table, report = actors_from_caviar([written(tmp_path, "labels.csv", HEADER + ROWS)], settings())
    expected = table_of(
        ("Walk1_0010_0030.mp4", 0, (0.1, 0.2, 0.3, 0.4), "context:walking;movement:walking", "Walk1_0"),
        ("Walk1_0010_0030.mp4", 0, (0.5, 0.2, 0.7, 0.4), "movement:inactive", "Walk1_1"),
        ("Walk1_0010_0030.mp4", 0.04, (0.1, 0.2, 0.3, 0.4), "movement:walking", "Walk1_0"),
    )
    assert_same(table, expected)
    assert report.num_read == 3
    thinned, _ = actors_from_caviar([tmp_path / "labels.csv"], settings("movement", every_s=Fraction(2, 5)))
    assert (len(thinned), thinned.classes) == (2, ("movement:inactive", "movement:walking"))


def test_parts_of_one_sequence_belong_together():
    names = ["Walk1_0236_0511.mp4", "Walk1_0001_0003", "Meet_WalkSplit_0170_0195.mp4", "Walk2.mpg", "Walk2"]
    assert [sequence_of(name) for name in names] == ["Walk1", "Walk1", "Meet_WalkSplit", "Walk2", "Walk2"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xml", "", "a.xml, line 1: must be XML; no element found"),
        ("a.xml", "<dataset/>", "of 0 boxes none is left"),
        ("a.xml", "<annotations/>", "a.xml, line 1: must be a <dataset> of frames"),
        ("a.xml", '<!DOCTYPE x [<!ENTITY y "z">]><dataset/>', "must not declare a document type"),
        ("a.xml", XML, "members of a group must be objects in its frame; 7 are not"),
        ("a.xml", GOOD.replace('yc="144"', ""), "line 9: an object must have a box with xc, yc, w and h in pixels"),
        ("a.xml", GOOD.replace('xc="96"', 'xc="900"'), "line 9: a box must lie in the frame of 384 x 288 pixels"),
        ("a.xml", GOOD.replace('number="50"', 'number="x"'), "an object must have an id and be in a numbered frame"),
        ("a.xml", GOOD.replace('id="2"', 'id="1"'), "an actor must be in one place at a time"),
        ("a.xml", GOOD.replace(STANDS, STANDS * 2), "an object must have one hypothesis; got 2"),
        ("a.csv", "", "a.csv, line 1: must hold at least one row; the file is empty"),
        ("a.csv", HEADER + ROWS.replace("context:walking", "walking"), "must look like 'movement:walking'"),
        ("a.csv", HEADER + ROWS.replace("context:walking", "mood:good"), "got 'mood:good'"),
        ("a.csv", HEADER + ROWS + ROWS, "line 6: a person must have each action once"),
        ("a.csv", HEADER + ROWS.replace("0.04", "soon"), "line 5: the time must be a number of seconds"),
        ("a.txt", "", "CAVIAR annotations must be a .xml or .csv file; got '.txt'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_file_and_line(tmp_path, name, content, words):
    with pytest.raises(AnnotationError) as raised:
        actors_from_caviar([written(tmp_path, name, content)], settings())
    assert words in str(raised.value)
    assert str(tmp_path / name) in str(raised.value)


def test_the_command_writes_table_and_sequences(tmp_path):
    out, groups = tmp_path / "actors.csv", tmp_path / "videos.csv"
    path = written(tmp_path, "labels.csv", HEADER + ROWS)
    outcome = run_study(
        app, "from-caviar", path, "--kind", "movement", "--kind", "context", "--out", out, "--groups", groups
    )
    assert outcome.exit_code == 0, outcome.output
    assert read_actor_table(out).action_names(0) == ("context:walking", "movement:walking")
    assert read_pairs(groups, "video", "sequence") == {"Walk1_0010_0030.mp4": "Walk1"}
    bad = tmp_path / "bad.csv"
    assert_refused(
        run_study(app, "from-caviar", path, path, "--video", "v", "--out", bad), "names one video", bad
    )
    assert_refused(run_study(app, "from-caviar", path, "--kind", "role", "--out", bad), "role do not", bad)


@pytest.mark.slow
def test_the_real_rows_are_6531_boxes_of_46_actors(shared_data):
    path = shared_data / "videos" / "caviar_lobby" / "labels.csv"
    table, report = actors_from_caviar([path], settings())
    assert (len(table), len(table.videos), len(set(table.actor_id))) == (6531, 28, 46)
    assert report.num_kept == 6531
    assert {name.partition(":")[0] for name in table.classes} <= set(KINDS)
    _, clip = table.clips()
    assert int((np.bincount(clip) > 1).sum()) == 1298
    assert len({sequence_of(video) for video in table.videos}) == 21
