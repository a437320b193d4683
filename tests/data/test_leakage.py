import pytest

from mule.data.split.leakage import identical_videos, met_in_pretraining, readings, shared_groups, stem, words
from mule.data.split.splits import SideVideos

KINETICS = (
    "archery", "brushing hair", "catching fish", "catching or throwing baseball", "clapping", "climbing ladder",
    "golf driving", "hugging", "kicking soccer ball", "playing violin", "pull ups", "shaking hands",
    "shooting basketball", "situp", "texting", "throwing ball", "walking the dog",
)  # fmt: skip


@pytest.mark.parametrize(
    "forms",
    [
        ("run", "runs", "running"),
        ("catch", "catches", "catching"),
        ("ride", "riding", "rides"),
        ("carry", "carries", "carrying"),
        ("kiss", "kisses", "kissing"),
        ("clap", "claps", "clapping", "clapped"),
        ("dance", "dancing"),
    ],
)
def test_the_forms_of_a_verb_have_one_stem(forms):
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("sing", "sit"), ("sit", "situp"), ("box", "bow"), ("swing", "swim")]
)
def test_different_words_have_different_stems(one, other):
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("action", "label", "likeness"),
    [
        ("catch", "catching fish", 1.0),
        ("golf", "golf driving", 1.0),
        ("brush_hair", "brushing hair", 1.0),
        ("pullup", "pull ups", 1.0),
        ("kick_ball", "kicking soccer ball", 1.0),
        ("shoot_bow", "shooting basketball", 0.5),
        ("climb_stairs", "climbing ladder", 0.5),
        ("hand shake", "shaking hands", 1.0),
        ("text on/look at a cellphone", "texting", 1.0),
        ("hug (a person)", "hugging", 1.0),
        ("c015 Throwing something", "throwing ball", 1.0),
    ],
)
def test_an_action_is_met_in_a_label_that_has_half_of_its_words(action, label, likeness):
    (met,) = met_in_pretraining([action], KINETICS)
    assert (met.label, met.likeness) == (label, likeness)


@pytest.mark.parametrize(
    "action", ["pour", "sit", "stand", "wave", "take a photo", "play musical instrument", "c008"]
)
def test_an_action_without_a_word_in_common_is_not_met(action):
    assert met_in_pretraining([action], KINETICS) == ()


def test_no_labels_and_no_actions_meet_nothing():
    assert met_in_pretraining([], KINETICS) == ()
    assert met_in_pretraining(["catch"], []) == ()


def test_a_higher_threshold_finds_no_more():
    actions = ["catch", "shoot_bow", "kick_ball", "pour"]
    found = [
        {each.action for each in met_in_pretraining(actions, KINETICS, min_likeness=at)}
        for at in (0.3, 0.5, 1.0)
    ]
    assert found[0] >= found[1] >= found[2]
    assert found[1] - found[2] == {"shoot_bow"}


def test_all_like_labels_are_counted():
    (met,) = met_in_pretraining(["throw"], KINETICS)
    assert met.num_labels == 2


def test_a_name_without_words_has_no_reading():
    assert readings("c008") == []
    assert words("12: run") == ("run",)


def test_groups_on_two_sides_are_named_with_their_videos():
    videos = SideVideos(("a", "b"), ("c",), ("d", "e"))
    groups = {"a": "film", "b": "other", "c": "third", "d": "film", "e": "fourth"}
    (shared,) = shared_groups(videos, groups)
    assert (shared.name, shared.videos, shared.sides) == ("film", ("a", "d"), ("train", "test"))
    assert shared_groups(videos, {video: video for video in groups}) == ()
    assert shared_groups(videos, {}) == ()


def test_identical_files_are_found_only_across_sides(tmp_path):
    content = {"a": b"same", "b": b"same", "c": b"diff", "d": b"same", "e": b"longer"}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    files = {name: tmp_path / name for name in content}
    (shared,) = identical_videos(SideVideos(("a", "b"), (), ("c", "d", "e")), files)
    assert (shared.videos, shared.sides) == (("a", "b", "d"), ("train", "test"))
    assert identical_videos(SideVideos(("a", "b"), (), ("c", "e")), files) == ()
    assert identical_videos(SideVideos(("a",), (), ("b",)), {}) == ()
