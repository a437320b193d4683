import numpy as np
import pytest

from mule.core.errors import AnnotationError
from mule.evaluation.ava import (
    FrameNumbers,
    evaluate_ava_files,
    read_ava_ground_truth,
    read_detections,
    read_frames,
    read_label_map,
)

SHORT_MAP = 'item {\n  name: "sit"\n  id: 1\n}\nitem {\n  name: "walk"\n  id: 3\n}\n'


def written(tmp_path, content, name="file.csv"):
    path = tmp_path / name
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        SHORT_MAP,
        "label {\n  name: \"sit\"\n  label_id: 1\n  label_type: PERSON_MOVEMENT\n}\nlabel { name: 'walk' label_id: 3 }",
        'item {\r\n\tid: 1 # first\r\n\tname: "sit"\r\n}\r\nitem{name:"walk" id:3}',
    ],
    ids=["item", "label", "any layout"],
)
def test_label_maps_of_either_form_are_read(tmp_path, content):
    assert read_label_map(written(tmp_path, content)) == {1: "sit", 3: "walk"}


def test_names_keep_their_punctuation(tmp_path):
    name = "sing to (e.g., self, {a} person: #1)"
    assert read_label_map(written(tmp_path, f'item {{\n  name: "{name}"\n  id: 77\n}}')) == {77: name}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "line 1: must hold blocks with a name and an id; there are none"),
        (
            'item {\n  name: "sit"\n}\n',
            r"line 3: a class must have a name and an id from 1 to 999999999; got .\{'name'",
        ),
        ("item {\n  id: 4\n}\n", "line 3: .* name"),
        ('item {\n  name: "sit"\n  id: 0\n}\n', "line 4: .* an id from 1 to 999999999"),
        (
            SHORT_MAP + 'item {\n  name: "sit"\n  id: 9\n}\n',
            "line 12: a class must be named once; got 'sit' with id 9",
        ),
        (SHORT_MAP + 'item {\n  name: "run"\n  id: 3\n}\n', "line 12: .* 'run' with id 3 again"),
    ],
)
def test_label_maps_that_do_not_name_classes_once_are_errors(tmp_path, content, words):
    with pytest.raises(AnnotationError, match=words):
        read_label_map(written(tmp_path, content))


def test_the_published_label_maps_have_60_and_80_classes(shared_data):
    folder = shared_data / "annotations" / "ava_v2.2"
    sixty = read_label_map(folder / "ava_action_list_v2.2_for_activitynet_2019.pbtxt")
    eighty = read_label_map(folder / "ava_action_list_v2.2.pbtxt")
    assert (len(sixty), len(eighty)) == (60, 80)
    assert sixty.items() <= eighty.items()
    assert len(read_frames(folder / "ava_val_excluded_timestamps_v2.2.csv", FrameNumbers())) == 37


def test_times_that_agree_to_a_millionth_of_a_second_are_one_frame():
    frames = FrameNumbers()
    first = frames.of(["a", "a", "a", "b"], np.array([902.0, 902.0000004, 902.000001, 902.0]))
    assert first[0] == first[1]
    assert len(set(first.tolist())) == 3
    assert frames.of(["b", "a"], np.array([902.0, 902.0])).tolist() == [first[3], first[0]]


def test_ground_truth_may_name_persons_and_frames_without_boxes(tmp_path):
    path = written(tmp_path, "v,0902,0.1,0.2,0.3,0.4,12,person 7\nv,903,-0.01,0.2,1.02,0.4,80\nv,0904\n")
    frames = FrameNumbers()
    truth, empty = read_ava_ground_truth(path, frames)
    assert truth.boxes_xyxy.tolist() == [[0.1, 0.2, 0.3, 0.4], [-0.01, 0.2, 1.02, 0.4]]
    assert truth.action_id.tolist() == [12, 80]
    assert truth.frame.tolist() == frames.of(["v", "v"], np.array([902.0, 903.0])).tolist()
    assert empty.tolist() == frames.of(["v"], np.array([904.0])).tolist()


def test_detections_without_a_score_score_one(tmp_path):
    path = written(tmp_path, "v,902,0.1,0.2,0.3,0.4,12\nv,902,0.1,0.2,0.3,0.4,12,-3e-1\nv,903\n")
    found = read_detections(path, FrameNumbers())
    assert found.score.tolist() == [1.0, -0.3]


def test_files_are_evaluated_together(tmp_path):
    result = evaluate_ava_files(
        written(
            tmp_path,
            "v,0902,.1,.1,.5,.5,1,0\nv,0903,.1,.1,.5,.5,3,0\nv,0904\nw,1000,.1,.1,.5,.5,1,0\n",
            "g.csv",
        ),
        written(
            tmp_path, "v,902.0,.1,.1,.5,.5,1,.7\nv,0904,.1,.1,.5,.5,1,.8\nw,1000,0,0,.1,.1,1,.9\n", "d.csv"
        ),
        written(tmp_path, SHORT_MAP, "l.pbtxt"),
        excluded=written(tmp_path, "w,1000.000\n", "x.csv"),
    )
    assert result.per_class == {"sit": 0.5, "walk": 0.0}
    assert result.ignored["detections_frame_excluded"] == result.ignored["ground_truth_frame_excluded"] == 1
    assert result.counts == {"frames": 3, "ground_truth_boxes": 2, "detections": 2}
