"""The page in a real browser: opened from disk, clicked, slid, filtered and typed at."""

from fractions import Fraction

import numpy as np
import pytest
from chromium import Page, find_chromium
from watched import header, moment, opinion, seen, watched_take

from mule.stage.takes import TakeRecipe, plan_take
from mule.video.encode import VideoWriter
from mule.watching.moments import Contributor, Reasons, RememberedActor
from mule.watching.outputs.annotating import write_annotated
from mule.watching.outputs.page import PageVideo, write_page
from mule.watching.thumbnails import NovelThumbnails, ThumbnailArchive, png_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs a Chromium browser"),
]

KNOWN = ("walk", "squat", "arm_circle", "clap", "carry_box", "kick_ball", "handshake", "jump", "bow", "wave")
SIZE = (180, 320)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A take of Stage, what was made up about it, and the folder with its video and page."""
    folder = tmp_path_factory.mktemp("watched")
    classes = (*KNOWN, "run", "sway", "jacks", "salute", "juggle", "overhead_lift", "high_five")
    plan = plan_take(TakeRecipe(seconds=20.0, num_actors=4, seed=5, classes=classes), 8)
    top, moments, key_frames = watched_take(plan, size=SIZE, known=KNOWN)
    thumbnails = NovelThumbnails(top.threshold)
    for each in moments:
        thumbnails.add(each, key_frames[each.key_time_s])
    frames = ((at / 16, key_frames[min(float(at // 16), max(key_frames))]) for at in range(20 * 16))
    with VideoWriter(folder / "take.mp4", SIZE, 16) as video:
        for _, frame in frames:
            video.write(frame[None])
    video = PageVideo(folder / "take.mp4", most_bytes_within=0)
    write_page(folder / "report.html", top, moments, video=video, thumbnails=thumbnails.kept)
    return top, moments, folder


@pytest.fixture
def page(watched, tmp_path):
    with Page(tmp_path) as page:
        page.open(watched[2] / "report.html")
        page.until("document.getElementById('video').readyState >= 2")
        yield page
        assert page.problems == []
        assert all(address.startswith(("file:", "data:", "blob:", "about:")) for address in page.addresses)


def novel_at(moments, value):
    """Actors novel at some time and looks that are novel, by a slow and obvious loop."""
    novel = [(each.track_id, 1 - each.so_far.novelty.p_value) for m in moments for each in m.actors]
    novel = [track for track, novelty in novel if novelty > value]
    return [len(set(novel)), len(novel)]


def counts(page):
    return page.run(
        "(({novel, novelLooks}) => [+novel, +novelLooks])(document.getElementById('counts').dataset)"
    )


def lanes(page):
    return page.run(
        "[...document.querySelectorAll('.lane')].filter(l => !l.hidden).map(l => +l.dataset.track)"
    )


def time_of(page):
    return page.run("+document.getElementById('clock').dataset.time")


def slide(page, place):
    page.run(
        f"(s => {{ s.value = {place}; s.dispatchEvent(new Event('input')); }})(document.getElementById('slider'))"
    )


def test_the_page_opens_from_disk_with_the_counts_of_the_moments(page, watched):
    assert counts(page) == novel_at(watched[1], 0.95)
    assert page.run("document.getElementById('video').videoWidth") == SIZE[1]
    assert page.run("document.getElementById('unseen').hidden")


def test_a_click_on_the_timeline_seeks_and_chooses_the_actor(page):
    for across in (0.25, 0.75):
        page.click(".lane:nth-child(2) .track", across=across)
        assert time_of(page) == pytest.approx(20 * across, abs=0.1)
        page.until(f"Math.abs(document.getElementById('video').currentTime - {20 * across}) < 0.15")
    chosen = page.run("+document.querySelector('.lane.chosen').dataset.track")
    assert page.run("document.querySelector('#why h2').textContent") == f"Actor {chosen}"


def test_the_slider_decides_again_and_reset_takes_it_back(page, watched):
    before = page.run("document.querySelector('.lane svg').innerHTML")
    seen_counts = set()
    for place in (0.0, 0.05, 0.2, 0.5, 0.9, 1.0):
        slide(page, place)
        assert counts(page) == novel_at(watched[1], 1 - 10 ** (-3 * place))
        seen_counts.add(tuple(counts(page)))
    assert len(seen_counts) > 3
    assert page.run("document.querySelector('.lane svg').innerHTML") != before
    kept = "document.querySelectorAll('#why .kept').length"
    assert page.run(kept) == 1  # says that actions and evidence are not decided again
    page.click("#reset")
    assert page.run(kept) == 0
    assert counts(page) == novel_at(watched[1], 0.95)
    assert page.run("document.getElementById('meaning').textContent") == "95 % of known actors pass"
    assert page.run("document.querySelector('.lane svg').innerHTML") == before


def test_boxes_change_colour_with_the_threshold(page):
    colours = """(() => { const c = document.getElementById('boxes');
      const k = document.createElement('canvas'); k.width = c.width; k.height = c.height;
      const pen = k.getContext('2d', {willReadFrequently: true}); pen.drawImage(c, 0, 0);
      const d = pen.getImageData(0, 0, c.width, c.height).data; let cyan = 0, yellow = 0;
      for (let i = 0; i < d.length; i += 4) {
        cyan += d[i] === 25 && d[i+1] === 227 && d[i+2] === 255; yellow += d[i] === 255 && d[i+1] === 210 && d[i+2] === 26; }
      return [cyan > 0, yellow > 0]; })()"""
    page.click(".lane:nth-child(1) .track", across=0.3)
    slide(page, 0.0)
    assert page.run(colours) == [False, True]
    slide(page, 1.0)
    assert page.run(colours) == [True, False]
    page.click("#only")
    assert page.run(colours) == [False, False]


def test_the_filter_hides_known_actors(page, watched):
    assert len(lanes(page)) == 4
    page.click("#only")
    assert sorted(lanes(page)) == sorted(
        {actor.track_id for each in watched[1] for actor in each.actors if actor.is_novel}
    )
    page.click("#only")
    assert len(lanes(page)) == 4


def test_everything_can_be_done_from_the_keyboard(page):
    page.run("document.activeElement.blur()")
    page.press("ArrowRight")
    at = time_of(page)
    page.press("ArrowRight")
    assert time_of(page) == at + 1
    page.press("ArrowLeft")
    assert time_of(page) == at
    first = page.run("document.querySelector('#why h2').textContent")
    page.press("ArrowDown")
    assert page.run("document.querySelector('#why h2').textContent") != first
    page.press("n")
    assert page.run("document.querySelector('#why .badge').textContent") == "novel"
    before = counts(page)
    for _ in range(40):
        page.press("]")
    assert counts(page)[1] < before[1]
    page.press("f")
    assert page.run("document.getElementById('only').checked")
    page.press("t")
    assert page.run("document.documentElement.dataset.theme") == "light"
    page.press(" ")
    page.until(f"+document.getElementById('clock').dataset.time !== {time_of(page)}")
    page.press(" ")
    assert page.run("document.getElementById('video').paused")


def test_a_thumbnail_leads_to_its_moment(page):
    page.click(".thumb:nth-child(2)")
    words = page.run("document.querySelector('.thumb:nth-child(2) span').textContent")
    actor = page.run("document.querySelector('.lane.chosen').dataset.track")
    assert words == f"#{actor}{time_of(page):.1f} s"


def test_a_click_on_a_box_chooses_the_actor(page, watched):
    _, moments, _ = watched
    at = next(each for each in moments if each.key_time_s == 4.0)
    for actor in at.actors:
        page.run("document.querySelector('.lane .who').click()")
        page.click(".lane .track", across=4.0 / 20)
        stage = page.run(
            "(a => [a.width, a.height])(document.getElementById('stage').getBoundingClientRect())"
        )
        scale = min(stage[0] / SIZE[1], stage[1] / SIZE[0])
        x1, _, x2, y2 = actor.box_xyxy_px
        x = (stage[0] - SIZE[1] * scale) / 2 + (x1 + x2) / 2 * scale
        y = (stage[1] - SIZE[0] * scale) / 2 + (y2 - 4) * scale
        page.click("#boxes", across=x / stage[0], down=y / stage[1])
        assert page.run("document.querySelector('#why h2').textContent") == f"Actor {actor.track_id}"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("is_dark", [True, False])
def test_nothing_is_wider_than_the_window(watched, tmp_path, width, is_dark):
    with Page(tmp_path, width=width, height=800, is_dark=is_dark, is_phone=width < 600) as page:
        page.open(watched[2] / "report.html")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.documentElement.dataset.theme") == ("dark" if is_dark else "light")
        page.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert page.problems == []


STRANGE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "../../x",
    "long" * 500,
    "\u202eשלום",
)


def test_strange_names_are_shown_and_never_run(tmp_path):
    moments = []
    for number, name in enumerate(STRANGE):
        like = RememberedActor(video=name, time_s=1.0, actions=(name,), distance=0.5, thumbnail="a.png")
        why = Reasons(
            remembered=(like,),
            contributor=Contributor(kind="object", name=name, share=0.5, found_by="attention"),
        )
        actor = seen(number, actions=[opinion(name, 9.0, 1.0)], reasons=why, novelty=0.99)
        moments.append(moment(float(number), actor, video=STRANGE[0]))
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "a.png").write_bytes(png_bytes(np.zeros((4, 4, 3), dtype=np.uint8)))
    write_page(
        tmp_path / "report.html",
        header(STRANGE, STRANGE[0]),
        moments,
        remembered=ThumbnailArchive(tmp_path / "memory"),
    )
    with Page(tmp_path, width=390, is_phone=True) as page:
        page.open(tmp_path / "report.html")
        assert page.run("document.getElementById('title').textContent") == STRANGE[0]
        for number, name in enumerate(STRANGE):
            page.run(f"document.querySelector('.lane[data-track=\"{number}\"] .who').click()")
            assert page.run("document.querySelector('#why .item span').textContent") == name
        assert page.run("document.querySelectorAll('script').length") == 2
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.problems == []


def test_the_policy_stops_what_gets_past_everything_else(watched, tmp_path):
    with Page(tmp_path) as page:
        page.open(watched[2] / "report.html")
        page.run("""(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
          document.body.append(s); document.body.insertAdjacentHTML('beforeend',
          '<img src="https://example.org/x.png" onerror="window.ran = 2"><a href="javascript:window.ran = 3">a</a>'); })()""")
        page.run("new Promise((done) => setTimeout(done, 200))")
        assert page.run("window.ran") is None
        assert len([text for text in page.problems if "Content Security Policy" in str(text)]) >= 2


@pytest.mark.parametrize("kind", ["nobody", "broken", "vp9", "h264", "within"])
def test_the_page_works_whatever_the_video_is(watched, tmp_path, kind):
    top, moments, folder = watched
    video = tmp_path / "video.mp4"
    shown = PageVideo(video, most_bytes_within=0)
    if kind in ("vp9", "h264"):
        frames = ((at / 4, np.zeros((*SIZE, 3), dtype=np.uint8)) for at in range(80))
        write_annotated(video, frames, moments, header=top, rate=Fraction(4), codec=kind)
        shown = PageVideo(video, has_boxes=True, most_bytes_within=0)
    elif kind == "within":
        shown = PageVideo(folder / "take.mp4", most_bytes_within=10**8)
    else:
        video.write_bytes(b"no video at all")
    write_page(tmp_path / "report.html", top, [] if kind == "nobody" else moments, video=shown)
    with Page(tmp_path) as page:
        page.open(tmp_path / "report.html")
        if kind in ("vp9", "h264", "within"):
            page.until("document.getElementById('video').readyState >= 2")
            assert page.run("document.getElementById('video').videoWidth") == SIZE[1]
        else:
            page.until("!document.getElementById('unseen').hidden")
        page.press(" ")
        page.until(f"+document.getElementById('clock').dataset.time > {time_of(page)}")
        assert counts(page) == ([0, 0] if kind == "nobody" else novel_at(moments, 0.95))
