"""The node is announced when the API server takes what its daemon writes."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cni.permission import WritePermission
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.patience import Patience
from kuryr_k8s.process import Waiting

NODE = Key("", "node1")


class Api:
    """Raises what is set; `asked` is set at each request."""

    def __init__(self, error=None):
        self.error = error
        self.asked = asyncio.Event()

    async def merge_patch(self, resource, key, patch, *, dry_run=False, **_):
        assert (resource.plural, key, patch, dry_run) == ("nodes", NODE, {}, True)
        self.asked.set()
        if self.error is not None:
            raise self.error
        return {}


def is_waiting(gauge):
    (metric,) = gauge.collect()
    return [sample.value for sample in metric.samples] == [1]


REFUSALS = [
    errors.KubeError("they name no node", status=401),
    errors.KubeError("they name no node", status=403),
    errors.KubeError("they name no node", status=422),
    errors.NoCredentials("they name no node, there are none"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: f"{error.status}")
async def test_credentials_that_are_refused_are_waited_for_and_seen(refusal, caplog):
    api, gauge = Api(refusal), Waiting()
    patience = Patience(start_retry=0.001, longest_start_retry=0.001)
    permission = WritePermission(api, NODE, gauge, patience)
    (accepted,) = permission.checks().values()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        started = group.create_task(permission.started())
        for _ in range(3):
            api.asked.clear()
            await api.asked.wait()
        assert not started.done()
        assert not accepted()
        assert is_waiting(gauge)
        assert "they name no node" in caplog.text
        api.error = None  # others were put into the file
    assert accepted()
    assert not is_waiting(gauge)


NO_REFUSALS = [
    None,
    errors.KubeNotFound("no such node", status=404),
    errors.KubeError('failed calling webhook "example.org"', status=500),
    errors.KubeError("etcd is being defragmented", status=503),
    errors.KubeError("no answer"),
]


@pytest.mark.parametrize("error", NO_REFUSALS, ids=lambda error: f"{error and error.status}")
async def test_node_is_announced_unless_its_credentials_are_refused(error):
    permission = WritePermission(Api(error), NODE, Waiting())
    async with asyncio.timeout(10):
        await permission.started()
