"""The form of relations is one setting away, in every system that has them, and in no other."""

from dataclasses import replace

import pytest

from mule.model import PooledActors
from mule.relations.aco import FactoredRelations, GridRelations
from mule.rivals.networks.acar import AcarRelations
from mule.systems.catalogue import find_system
from mule.systems.design import tiny_sizes

FORMS = {"grid": GridRelations, "factored": FactoredRelations}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("mule", GridRelations),
        ("mule-literal", GridRelations),
        ("bce-aco-r", GridRelations),
        ("mule-without-aco-r", PooledActors),
        ("acar", AcarRelations),
    ],
)
@pytest.mark.parametrize("asked", [None, "grid", "factored"])
def test_relations_are_of_the_form_that_is_asked_for(name, own, asked):
    model = find_system(name).build(replace(tiny_sizes(8, 3), aco_r=asked))
    has_forms = own in FORMS.values()
    assert type(model.relations) is (FORMS[asked] if asked and has_forms else own)
