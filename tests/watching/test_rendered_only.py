"""A model of rendered scenes says so when it is given any other video."""

from pathlib import Path

import pytest
from clock_videos import clock_video

from mule.watching.engine.bundle import STAGE, read_bundle
from mule.watching.engine.watch import open_watch


@pytest.mark.parametrize("is_rendered", [False, True])
def test_a_model_of_rendered_scenes_says_that_it_knows_nothing_else(tmp_path, is_rendered):
    clock_video(tmp_path / "videos" / "film.mp4", 20, level=60)
    if is_rendered:
        (tmp_path / "tracks.csv").write_text("video,time_s,x1,y1,x2,y2,actions,actor_id\n")
    noted: list[str] = []
    open_watch(tmp_path / "videos" / "film.mp4", read_bundle(Path(STAGE)), noted=noted.append)
    assert any(f"{STAGE} knows rendered scenes only" in sentence for sentence in noted) != is_rendered
