"""A comparison on a Ray cluster: the rows are those of one process, bit for bit."""

from dataclasses import replace

import pytest
from tiny_rows import silent, watched_by_nobody

from mule.comparison.compare import compare


@pytest.mark.slow
@pytest.mark.distributed
def test_rows_on_a_cluster_of_two_workers_are_those_of_one_process(asked, done, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shared = replace(asked, out=tmp_path, engine="ray", num_workers=2)
    found = compare(shared, watch=watched_by_nobody, noted=silent)
    assert found.failures == ()
    assert found.findings is not None
    assert done.findings is not None
    assert len(found.findings.rows) == len(asked.contestants)
    for ours, theirs in zip(found.findings.rows, done.findings.rows, strict=True):
        assert ours.results == theirs.results
    assert not ray.is_initialized()
