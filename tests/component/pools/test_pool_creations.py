"""Creations for pools that others see half way, or that fail: nothing is lost or made twice."""

import pytest

from kuryr_k8s.cli.local import LocalController
from tests.component.pools.pods import pool, run, until_ports
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer, lose_reply
from tests.kit.ledger import settle

PORT_LIST = "/v2.0/ports"


async def test_survey_that_sees_a_creation_half_way_leaves_its_ports_alone(stage):
    """Neutron shows the ports of a bulk request before they are bound."""

    async def slowly(_request, proceed):
        before = set(stage.cloud.ports)
        response = await proceed()
        made = [port for id_, port in stage.cloud.ports.items() if id_ not in before]
        bound = [(port, dict(port)) for port in made]
        for port in made:
            port["binding:vif_type"] = "unbound"
        lists = stage.cloud.calls.count("GET", PORT_LIST)
        await stage.cloud.wait_for(lambda: stage.cloud.calls.count("GET", PORT_LIST) > lists + 2)
        for port, as_it_was in bound:
            port["binding:vif_type"] = as_it_was["binding:vif_type"]
        return response

    limits = {"ports_pool_min": "4", "ports_pool_batch": "4"}
    async with stage.controller(**pool(**limits)) as app:
        await run(stage, "web")
        await settle(stage, lambda: app)
        stage.cloud.faults.add(method="POST", path=r"/ports$", action=slowly)
        await run(stage, "two")
        await run(stage, "three")
        await settle(stage, lambda: app)
        assert stage.cloud.calls.count("DELETE") == 0


@pytest.mark.parametrize("broken", [answer(500), lose_reply()], ids=["500", "lost"])
async def test_ports_that_an_operator_asked_for_come_though_a_creation_fails(
    stage, controller_socket, broken
):
    options, path = controller_socket
    groups = pool(ports_pool_min="0", ports_pool_batch="1")
    async with stage.controller(**groups, **options) as app, LocalController(path) as local:
        rule = stage.cloud.faults.add(method="POST", path=r"/ports$", action=broken)
        wanted = {"node": NODE, "namespace": stage.cluster.namespace, "count": 30}
        await local.post("/pools", wanted)
        await until_ports(stage, 30)
        await settle(stage, lambda: app)
        assert rule.hits == 1
        assert len(stage.cloud.ports) == 30
