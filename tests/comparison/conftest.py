"""What the tests of this room share: clips rendered once, and a comparison that was run once."""

import pytest
from tiny_rows import JUDGING, contestants, silent, watched_by_nobody

from mule.comparison.compare import Asked, compare


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Where rendered clips are kept."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="session")
def asked(root, tmp_path_factory):
    """MULE as printed, a rival without relations, and the reference, over two steps each."""
    return Asked(
        contestants(root, "mule-literal-without-aco-r", "slowfast", "bce-aco-r"),
        tmp_path_factory.mktemp("compared"),
        judging=JUDGING,
        num_workers=0,
    )


@pytest.fixture(scope="session")
def done(asked):
    """The comparison, run once; tests look at it and leave it as it is."""
    return compare(asked, watch=watched_by_nobody, noted=silent)
