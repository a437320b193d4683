import math
from fractions import Fraction

import pytest
from from_files import assert_refused, assert_same, assert_survives_the_file, run, table_of, written

from mule.data.convert.conversion import ActionRule, BoxSettings
from mule.data.convert.cvat import actors_from_cvat
from mule.data.table.reading import read_actor_table

META = """  <version>1.1</version>
  <meta>
    <task>
      <id>5</id>
      <name>interpolation</name>
      <size>4620</size>
      <mode>interpolation</mode>
      <overlap>5</overlap>
      <labels>
        <label>
          <name>person</name>
          <attributes>
            <attribute>
              <name>pose</name>
              <mutable>True</mutable>
              <input_type>select</input_type>
              <default_value>__undefined__</default_value>
              <values>__undefined__
sit
stand</values>
            </attribute>
          </attributes>
        </label>
      </labels>
      <original_size>
        <width>640</width>
        <height>480</height>
      </original_size>
      <source>hall.mp4</source>
    </task>
    <dumped>2018-09-25 16:05:07.134046+03:00</dumped>
  </meta>
"""
BOX = '<box frame="{frame}" xtl="64.00" ytl="48.00" xbr="320.00" ybr="240.00" outside="{out}" occluded="0" keyframe="1">'


def box(frame, *, outside=0, **attributes):
    inner = "".join(
        f'\n      <attribute name="{name}">{value}</attribute>' for name, value in attributes.items()
    )
    return f"    {BOX.format(frame=frame, out=outside)}{inner}\n    </box>\n"


def document(*tracks, meta=META):
    body = "".join(
        f'  <track id="{at}" label="person" source="manual">\n{track}  </track>\n'
        for at, track in enumerate(tracks)
    )
    return f'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n{meta}{body}</annotations>\n'


TRACKS = (
    box(0, pose="sit", waves="true", talks="false", age="31")
    + box(1, pose="__undefined__", waves="false")
    + box(30, pose="stand &amp; lean")
    + box(31, outside=1, pose="sit"),
    box(0, pose="sit")
    + '    <polygon frame="1" points="324.79,213.16;323.74,227.90;347.42,237.37" outside="0" occluded="0" keyframe="1">\n'
    '      <attribute name="pose">sit</attribute>\n    </polygon>\n',
)
AT = f"line {document('HERE').split('HERE')[0].count(chr(10)) + 1}"
PLACE = (0.1, 0.1, 0.5, 0.5)
BY_ATTRIBUTE = ActionRule(from_class=False, from_attributes=True)


def converted(tmp_path, content, **others):
    settings = BoxSettings(**{"actions": BY_ATTRIBUTE, "frame_rate": Fraction(30)} | others)
    return actors_from_cvat([written(tmp_path, "annotations.xml", content)], settings)


@pytest.mark.parametrize(
    "encoded", [str.encode, lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()]
)
def test_tracks_become_the_expected_table(tmp_path, encoded):
    table, report = converted(tmp_path, encoded(document(*TRACKS)))
    expected = table_of(
        ("hall", 0, PLACE, "sit;waves", "0"),
        ("hall", 1, PLACE, "stand & lean", "0"),
        ("hall", 0, PLACE, "sit", "1"),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("boxes", 6, 3)
    assert report.dropped == {"without_an_action": 1, "outside": 1, "not_a_box": 1}


def test_labels_may_name_actions_and_unlabelled_boxes_may_stay(tmp_path):
    table, _ = converted(tmp_path, document(*TRACKS), actions=ActionRule(from_class=True))
    assert table.classes == ("person",)
    kept, report = converted(tmp_path, document(*TRACKS), keep_unlabelled=True, every_s=Fraction(1))
    assert kept.time_s.tolist() == [0, 1, 0]
    assert report.dropped["between_key_times"] == 1


def test_the_video_is_called_by_switch_source_or_file(tmp_path):
    assert converted(tmp_path, document(*TRACKS), video="film")[0].videos == ("film",)
    without = META.replace("      <source>hall.mp4</source>\n", "")
    assert converted(tmp_path, document(*TRACKS, meta=without))[0].videos == ("annotations",)


def test_a_rotated_box_becomes_the_upright_box_around_it(tmp_path):
    turned = box(0, pose="sit").replace('occluded="0"', 'occluded="0" rotation="90.00"')
    table, report = converted(tmp_path, document(turned))
    expected = ((192 - 96) / 640, (144 - 128) / 480, (192 + 96) / 640, (144 + 128) / 480)  # 256 x 192, turned
    assert math.dist(table.boxes_xyxy_unit[0], expected) < 1e-9
    assert report.noted["rotated_boxes_made_upright"] == 1


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path):
    laughs = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(12))
    content = f'<?xml version="1.0"?>\n<!DOCTYPE annotations [{laughs}]>\n<annotations>&a12;</annotations>'
    out = tmp_path / "table.csv"
    path = written(tmp_path, "annotations.xml", content)
    words = "annotations.xml, line 2: must not declare a document type"
    assert_refused(run("from-cvat", path, "--fps", "30", "--out", out), words, out)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "",
            "annotations.xml, line 1: must be XML as 'CVAT for video 1.1' writes it, unpacked; no element found",
        ),
        (b"PK\x03\x04zip", "annotations.xml, line 1: must be XML"),
        (document(*TRACKS)[:-30], "must be XML"),
        (
            b'<?xml version="1.0" encoding="shift_jis"?><annotations/>',
            "annotations.xml: must be XML in UTF-8; multi-byte encodings are not supported",
        ),
        (b'<?xml version="1.0" encoding="klingon"?><annotations/>', "unknown encoding"),
        ("<labels/>", "line 1: must hold tracks, as 'CVAT for video 1.1' writes them; got <labels>"),
        (
            '<annotations>\n<image id="0" name="a.jpg" width="6" height="4"/>\n</annotations>',
            "line 2: must hold tracks, as 'CVAT for video 1.1' writes them; got <image>",
        ),
        (document(), "of 0 boxes none is left"),
        (document(*TRACKS, meta=""), "must give the size of the frames in meta/task/original_size"),
        (
            document(box(4620, pose="sit")),
            f"{AT}: frame must be one of the video, whose last is 4619; got 4620",
        ),
        (
            document(box("-1", pose="sit")),
            f"{AT}: a box must have a frame and four corners in pixels; got frame='-1'",
        ),
        (
            document(box(0, pose="sit").replace("320.00", "32e9")),
            f"{AT}: a box must lie in the frame of 640 x 480",
        ),
        (
            document(box(0, pose="sit").replace("320.00", "")),
            f"{AT}: a box must have a frame and four corners",
        ),
        (document(box(0, pose="a;b")), f"{AT}: an action must not contain ';'"),
        (document(box(0, pose="sit")).replace(' label="person"', ""), f"{AT}: its track must have a label"),
        (
            document(box(0, pose="sit"), box(0, pose="sit")).replace('id="1"', 'id="1" task_id="9"'),
            "annotations.xml: must hold one task; got tracks of 2",
        ),
    ],
)
def test_wrong_files_are_refused_by_line_and_nothing_is_written(tmp_path, content, words):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "annotations.xml", content)
    assert_refused(run("from-cvat", path, "--fps", "30", "--out", out), words, out)


def test_missing_files_and_videos_named_twice_are_refused(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "annotations.xml", document(*TRACKS))
    again = written(tmp_path, "again.xml", document(*TRACKS))
    assert_refused(run("from-cvat", tmp_path / "none.xml", "--fps", "30", "--out", out), "no such file", out)
    assert_refused(
        run("from-cvat", path, again, "--fps", "30", "--out", out), "a video must be in one file", out
    )
    assert_refused(run("from-cvat", path, "--out", out), "--fps", out)
    assert_refused(
        run("from-cvat", path, "--fps", "30", "--out", tmp_path / "t.json"), "t.json", tmp_path / "t.json"
    )


def test_the_command_writes_the_table(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "annotations.xml", document(*TRACKS))
    outcome = run(
        "from-cvat", path, "--fps", "30000/1001", "--every", "1", "--attribute", "pose", "--out", out
    )
    assert outcome.exit_code == 0, outcome.output
    assert "left out: not a box" in outcome.stdout
    table = read_actor_table(out)
    assert table.classes == ("sit", "stand & lean")
    assert table.time_s.tolist() == [0, 30 * 1001 / 30000, 0]
