"""What the tests of watching share: a bundle, and takes to watch, made once."""

import pytest
from tiny_bundles import bundled, takes, trained

from mule.watching.engine.bundle import read_bundle


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("watching"))


@pytest.fixture(scope="session")
def bundle_dir(run_dir):
    return bundled(run_dir, run_dir.parent / "bundle")


@pytest.fixture(scope="session")
def bundle(bundle_dir):
    return read_bundle(bundle_dir)


@pytest.fixture(scope="session")
def take(tmp_path_factory):
    """A take of four seconds; its boxes lie in the folder above."""
    return takes(tmp_path_factory.mktemp("takes") / "stage")
