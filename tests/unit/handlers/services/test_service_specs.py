"""Specs of Services, by what drivers decide."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    ServiceProjectDriver,
    ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver,
)
from kuryr_k8s.handlers.services.spec import ServiceSpecs
from tests.kit.service_objects import service, subnet


class ThirdParty(ServiceProjectDriver, ServiceSubnetsDriver, ServiceSecurityGroupsDriver):
    """Decides by itself."""

    def __init__(self):
        super().__init__(None)

    async def project(self, service):
        return "far"

    async def subnets(self, service, project_id):
        return (subnet("10.96.0.0/15"),)

    async def security_groups(self, service, project_id):
        return ()


def specs(*known):
    slots = ServiceProjectDriver, ServiceSubnetsDriver, ServiceSecurityGroupsDriver
    return ServiceSpecs(dict.fromkeys(slots, ThirdParty()), known)


async def test_project_that_the_configuration_does_not_name_is_refused():
    with pytest.raises(errors.Refused, match=r"project far, .*\[policy\] projects"):
        await specs("default", "near").of(service(("http", 80)))


async def test_project_of_a_third_partys_driver_that_the_configuration_names():
    (spec,) = await specs("default", "far").of(service(("http", 80)))
    assert spec.project_id == "far"
