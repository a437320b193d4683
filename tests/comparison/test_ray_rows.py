"""A comparison on a Ray cluster: the rows are those of processes here, bit for bit."""

from dataclasses import replace

import pytest
from tiny_rows import silent, watched_by_nobody

from mule.comparison.compare import compare


@pytest.mark.slow
@pytest.mark.distributed
def test_rows_on_a_cluster_are_those_of_processes_here(asked, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    two = replace(asked, contestants=asked.contestants[:2], num_workers=2, out=tmp_path / "here")
    here = compare(two, watch=watched_by_nobody, noted=silent)
    there = compare(replace(two, engine="ray", out=tmp_path / "there"), watch=watched_by_nobody, noted=silent)
    assert here.failures == there.failures == ()
    assert here.findings is not None
    assert there.findings is not None
    assert len(there.findings.rows) == 2
    for ours, theirs in zip(here.findings.rows, there.findings.rows, strict=True):
        assert ours.results == theirs.results
    assert not ray.is_initialized()
