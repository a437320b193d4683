"""Numbers in the README are those of the pages that commands write."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/RESULTS_JHMDB.md").read_text()


def auroc(method):
    judged = PAGE.partition("## Each method by the score it is judged by")[2]
    line = next(line for line in judged.splitlines() if line.startswith(f"| {method} |"))
    return float(line.split("|")[4].replace("*", "").split("±")[0])


def test_what_the_readme_says_of_real_video_is_what_was_measured():
    told = README[README.index("On real video (J-HMDB") :].partition("\n\n")[0]
    said = [float(number) for number in re.findall(r"\d\d\.\d", told)]
    methods = ("mule-memory", "mule-literal", "bce-aco-r", "bce-aco-r-memory")
    assert said == pytest.approx([auroc(method) for method in methods], abs=0.0501)  # rounded to one place
