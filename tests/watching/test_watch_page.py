import base64
import hashlib
import html
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import av
import numpy as np
import pytest
from watched import KNOWN_95, header, moment, opinion, seen, three_moments

from mule.core.errors import AnnotationError, MuleError, RangeError
from mule.watching.moments import Reasons, RememberedActor
from mule.watching.outputs import page as content_module
from mule.watching.outputs.page import PageVideo, page_content, write_page
from mule.watching.thumbnails import (
    MOST_PER_ACTOR,
    PICTURE_ASPECT,
    THUMBNAILS,
    NovelThumbnails,
    ThumbnailArchive,
    cut_out,
    cut_out_person,
    png_bytes,
    thumbnails_in,
    write_thumbnails,
)

STRANGE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "{{script}} {{content}}",
    "../../x",
    'it\'s \\u003c & "so"',
    "name " * 2000,
    "\u202eשלום",
]


class Outline(HTMLParser):
    """The tags of a page, and the text of its scripts, as a browser would find them."""

    def __init__(self, text):
        super().__init__()
        self.attributes, self.scripts, self.is_within = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        self.is_within = tag in ("script", "style")
        if self.is_within:
            self.scripts.append("")

    def handle_data(self, data):
        if self.is_within:
            self.scripts[-1] += data

    def handle_endtag(self, tag):  # noqa: ARG002 - as the parser calls it
        self.is_within = False


def page_of(path, top=None, moments=None, **others):
    write_page(path, top or header(), three_moments() if moments is None else moments, **others)
    return path.read_text()


def content_of(text):
    found = re.search(r'<script id="content" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def picture(level=100, rows=20, cols=10):
    return np.full((rows, cols, 3), level, dtype=np.uint8)


def decoded(png):
    """The image of a PNG, by the video decoder: not by the library that wrote it."""
    with av.open(io.BytesIO(png), "r") as file:
        return next(file.decode(video=0)).to_ndarray(format="rgb24")


def test_a_page_of_nothing_is_a_page(tmp_path):
    assert content_of(page_of(tmp_path / "report.html", moments=[]))["tracks"] == []


def test_the_page_holds_every_look_with_the_number_that_decides(tmp_path):
    found = content_of(page_of(tmp_path / "report.html"))
    assert found["times"] == [0.0, 1.0, 2.0]
    looks = {
        track["id"]: [(each["at"], each["novelty"]) for each in track["looks"]] for track in found["tracks"]
    }
    assert looks == {
        0: [(1, 1 - 0.9), (2, 1 - 0.9)],
        4: [(1, 1 - (1 - 0.99)), (2, 1 - (1 - 0.98))],
        7: [(2, 1 - 0.9)],
    }
    novel = {
        (track["id"], each["at"])
        for track in found["tracks"]
        for each in track["looks"]
        if each["novelty"] > found["threshold"]["value"]
    }
    assert novel == {(4, 1), (4, 2)}


@pytest.mark.parametrize("name", STRANGE)
def test_no_name_changes_the_structure_of_the_page(tmp_path, name):
    plain = Outline(page_of(tmp_path / "plain.html"))
    remembered = Reasons(remembered=(RememberedActor(video=name, time_s=1.0, actions=(name,), distance=0.5),))
    moments = [moment(0.0, seen(actions=[opinion(name, 9.0, 1.0)], reasons=remembered), video=name)]
    text = page_of(tmp_path / "strange.html", header([name], name), moments)
    strange = Outline(text)
    assert strange.attributes == plain.attributes
    assert strange.scripts[0] == plain.scripts[0]
    assert strange.scripts[2] == plain.scripts[2]
    found = content_of(text)
    assert found["source"]["video"] == name
    assert found["tracks"][0]["looks"][0]["does"][0][0] == name
    assert f"<title>{html.escape(name)} · MULE</title>" in text


def test_the_policy_allows_the_pages_own_script_and_nothing_from_outside(tmp_path):
    outline = Outline(page_of(tmp_path / "report.html"))
    metas = [attributes for tag, attributes in outline.attributes if tag == "meta"]
    (policy,) = [each["content"] for each in metas if each.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, text in (("style-src", outline.scripts[0]), ("script-src", outline.scripts[2])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"
    for _, attributes in outline.attributes:
        assert not attributes.keys() & {"src", "href", "style"}
        assert not [name for name in attributes if name.startswith("on")]


def test_the_script_writes_names_as_text_only():
    script = (content_module.Path(content_module.__file__).parent / "page.js").read_text()
    for risk in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "http:",
        "https:",
    ):
        assert risk not in script.replace("http://www.w3.org/2000/svg", "")


def test_a_small_video_lies_within_and_a_large_one_beside(tmp_path):
    (tmp_path / "out").mkdir()
    video = tmp_path / "in: 50% #1?.mp4"
    video.write_bytes(b"0123456789")
    within = content_of(page_of(tmp_path / "out" / "report.html", video=PageVideo(video)))["video"]
    assert base64.b64decode(within["bytes"]) == b"0123456789"
    beside = content_of(
        page_of(tmp_path / "out" / "report.html", video=PageVideo(video, has_boxes=True, most_bytes_within=9))
    )["video"]
    assert beside["src"] == "./../in%3A%2050%25%20%231%3F.mp4"
    assert (beside["boxes"], "bytes" in beside) == (True, False)
    with pytest.raises(MuleError, match="video cannot be read"):
        page_of(tmp_path / "out" / "report.html", video=PageVideo(tmp_path / "none.mp4"))


def remembering(thumbnail):
    like = RememberedActor(video="v", time_s=1.0, actions=("sit",), distance=0.5, thumbnail=thumbnail)
    return [moment(float(t), seen(reasons=Reasons(remembered=(like,)))) for t in range(3)]


def test_a_remembered_actors_picture_is_in_the_page_once(tmp_path):
    (tmp_path / "a.png").write_bytes(png_bytes(picture()))
    found = page_content(header(), remembering("a.png"), thumbnails=(), remembered=ThumbnailArchive(tmp_path))
    assert len(found["pictures"]) == 1
    assert base64.b64decode(found["pictures"][0].removeprefix("data:image/png;base64,")) == png_bytes(
        picture()
    )
    assert [look["why"]["like"][0]["picture"] for look in found["tracks"][0]["looks"]] == [0, 0, 0]
    for name, memory in (("none.png", tmp_path), ("a.png", None)):
        found = page_content(
            header(), remembering(name), thumbnails=(), remembered=memory and ThumbnailArchive(memory)
        )
        assert found["tracks"][0]["looks"][0]["why"]["like"][0]["picture"] is None


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "link.png", "inner/../../secret.png"])
def test_a_picture_outside_the_memory_is_refused(tmp_path, name):
    memory = tmp_path / "memory"
    (memory / "inner").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(png_bytes(picture()))
    (memory / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(AnnotationError, match="must lie in the folder"):
        page_content(
            header(), remembering(name), thumbnails=(), remembered=memory and ThumbnailArchive(memory)
        )


def test_thumbnails_of_a_bundle_are_one_file_and_an_old_folder_still_loads(tmp_path):
    pictures = {f"{number}.png": png_bytes(picture() // (number + 1)) for number in range(3)}
    for name, order in (("a", pictures), ("b", reversed(pictures))):
        (tmp_path / name).mkdir()
        write_thumbnails(tmp_path / name / THUMBNAILS, {each: pictures[each] for each in order})
    assert (tmp_path / "a" / THUMBNAILS).read_bytes() == (tmp_path / "b" / THUMBNAILS).read_bytes()
    (tmp_path / "old" / "thumbnails").mkdir(parents=True)
    for name, content in pictures.items():
        (tmp_path / "old" / "thumbnails" / name).write_bytes(content)
    for bundle in ("a", "old"):
        archive = thumbnails_in(tmp_path / bundle)
        assert archive is not None
        assert {name: archive.read(name) for name in pictures} == pictures
        assert archive.read("none.png") is None
    assert thumbnails_in(tmp_path) is None
    (tmp_path / "a" / THUMBNAILS).write_bytes(b"cut short")
    with pytest.raises(AnnotationError, match="must be the thumbnails of a bundle"):
        ThumbnailArchive(tmp_path / "a" / THUMBNAILS).read("0.png")


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", png_bytes(picture()) + bytes(600_000)])
def test_what_is_no_small_picture_is_refused(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(AnnotationError, match="must be a PNG or JPEG"):
        page_content(header(), remembering("a.png"), thumbnails=(), remembered=ThumbnailArchive(tmp_path))


def test_of_very_many_looks_the_most_novel_keep_their_reasons(monkeypatch):
    monkeypatch.setattr(content_module, "MOST_REASONS", 3)
    moments = [moment(float(t), seen(novelty=t / 10)) for t in range(8)]
    found = page_content(header(), moments, thumbnails=(), remembered=None)
    assert [look["at"] for look in found["tracks"][0]["looks"] if "why" in look] == [5, 6, 7]
    assert found["explained"] == 3


def test_png_files_hold_the_image():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (7, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(png_bytes(image)), image)


@pytest.mark.parametrize(
    "box", [(0.4, 0.1, 0.5, 0.9), (0.0, 0.1, 0.05, 0.9), (0.1, 0.4, 0.9, 0.5), (0.0, 0.0, 1.0, 1.0)]
)
def test_a_remembered_person_fits_the_shape_of_a_picture_whole(box):
    rows, cols = 120, 160
    image = np.zeros((rows, cols, 3), dtype=np.uint8)
    x1, y1, x2, y2 = box
    image[int(y1 * rows) : int(y2 * rows), int(x1 * cols) : int(x2 * cols)] = 255
    cut = cut_out_person(image, box)
    assert cut.any(axis=2).sum() == image.any(axis=2).sum()  # nothing of the person is cut off
    assert (
        cut.shape[1] / cut.shape[0] >= 0.9 * PICTURE_ASPECT
    )  # a page that fills its picture shows head and feet


def test_an_actor_is_cut_out_with_a_margin_and_made_small():
    image = np.zeros((1000, 500, 3), dtype=np.uint8)
    image[400:800, 100:300] = 255
    cut = cut_out(image, (0.2, 0.4, 0.6, 0.8))
    assert cut.shape == (173, 86, 3)
    assert cut[86, 43].tolist() == [255, 255, 255]
    assert cut[0, 0].tolist() == [0, 0, 0]
    assert cut_out(image, (0.0, 0.0, 1e-6, 1e-6)).shape == (1, 1, 3)


def test_the_most_novel_looks_are_kept_a_few_per_actor_and_apart():
    rng = np.random.default_rng(1)
    thumbnails = NovelThumbnails(KNOWN_95, most=5, apart_s=3.0)
    seen_novelty = {}
    for second in range(40):
        novelty = rng.random(4)
        actors = [seen(number, novelty=float(value)) for number, value in enumerate(novelty)]
        seen_novelty |= {
            (float(second), number): 1 - (1 - float(value)) for number, value in enumerate(novelty)
        }
        thumbnails.add(moment(float(second), *actors), picture(second))
    kept = thumbnails.kept
    assert len(kept) == 5
    assert [each.novelty for each in kept] == sorted((each.novelty for each in kept), reverse=True)
    assert kept[0].novelty == max(seen_novelty.values())
    for each in kept:
        assert seen_novelty[each.key_time_s, each.track_id] == each.novelty
        assert decoded(each.png)[0, 0, 0] == each.key_time_s
        same = [other for other in kept if other.track_id == each.track_id]
        assert len(same) <= MOST_PER_ACTOR
        assert all(other is each or abs(other.key_time_s - each.key_time_s) >= 3 for other in same)
    with pytest.raises(RangeError, match="at least 1"):
        NovelThumbnails(KNOWN_95, most=0)


def test_moments_pages_and_summaries_need_no_torch():
    script = (
        "import sys, mule.watching.outputs.page, mule.watching.outputs.summary, mule.watching.outputs.exports, mule.watching.outputs.exports, "
        "mule.watching.outputs.annotating, mule.watching.outputs.moments_file; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
