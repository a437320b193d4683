"""Links and pictures of the pages of the studies."""

import re
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[2] / "studies"
LINK = re.compile(r"\]\(([^)#]+)\)")


def links(page):
    return [
        page.parent / target for target in LINK.findall(page.read_text()) if not target.startswith("http")
    ]


def test_links_between_pages_lead_somewhere():
    pages = [*STUDIES.glob("*.md"), *STUDIES.glob("*/*.md")]
    assert len(pages) > 15
    for page in pages:
        assert [link for link in links(page) if not link.exists()] == [], page.name


def test_every_picture_is_shown():
    shown = {link.resolve() for page in (STUDIES / "pages").glob("*.md") for link in links(page)}
    assert {path.resolve() for path in (STUDIES / "pages" / "pictures").rglob("*.png")} <= shown


def test_every_page_has_a_title_of_its_own():
    titles = [
        page.read_text().partition("\n")[0]
        for page in STUDIES.rglob("*.md")
        if page.name != "readme_table.md"
    ]
    assert len(set(titles)) == len(titles)
    assert all(title.startswith("# ") for title in titles)
