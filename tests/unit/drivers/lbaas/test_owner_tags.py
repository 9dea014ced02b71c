"""Owners as tags write them: clouds keep these for as long as the objects live."""

import pytest

from kuryr_k8s.drivers.base.tags import owner_of, owner_tag, tags_of
from kuryr_k8s.model.owner import Owner, Role


@pytest.mark.parametrize("role", Role)
def test_owner_is_read_from_its_tags_whatever_its_role(role):
    owner = Owner("6f1c9a52-1111-4222-8333-444455556666", role)
    assert owner_of(tags_of(("cluster",), "default", owner)) == owner


def test_roles_are_written_as_they_always_were():
    written = [owner_tag(Owner("u", role)).removeprefix("kuryr-service:u") for role in Role]
    of_services = ["", "-second", "-external", "-external-second", "-shared"]
    assert written == [*of_services, "kuryr-pod:u", "kuryr-neutron-port:u", "kuryr-l7-router:u"]
