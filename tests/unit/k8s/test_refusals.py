"""Which 403 of the API server says that we lack a permission: that of its authorizer."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credential_files import Files
from kuryr_k8s.k8s.credentials import Credentials
from kuryr_k8s.k8s.resources import KURYRPORTS

BODY = {"metadata": {"namespace": "n", "name": "web"}}
PORT = 'kuryrports.openstack.org "web" is forbidden: '
UNAUTHORIZED = {
    "one object": PORT + 'User "system:serviceaccount:kube-system:kuryr-controller" cannot patch '
    'resource "kuryrports/status" in API group "openstack.org" in the namespace "n": RBAC: '
    'clusterrole.rbac.authorization.k8s.io "kuryr" not found',
    "a collection": 'pods is forbidden: User "kuryr" cannot list resource "pods" in API group "" '
    "at the cluster scope",
    "a path": 'forbidden: User "system:anonymous" cannot get path "/version"',
}
REFUSED = {
    "quota": PORT + "exceeded quota: few, requested: count/kuryrports.openstack.org=1, used: "
    "count/kuryrports.openstack.org=5, limited: count/kuryrports.openstack.org=5",
    "webhook": 'admission webhook "ports.example.org" denied the request: not on Sundays',
    "webhook that sounds like an authorizer": 'admission webhook "ports.example.org" denied the '
    'request: forbidden: User "kuryr" cannot do that',
    "policy": PORT + "ValidatingAdmissionPolicy 'few' with binding 'few' denied request: not on "
    "Sundays",
    "policy that sounds like an authorizer": PORT + "ValidatingAdmissionPolicy 'few' with binding "
    "'few' denied request: is forbidden: User \"kuryr\" cannot do that",
    "namespace": PORT + "unable to create new content in namespace n because it is being "
    "terminated",
    "proxy": None,
}


@pytest.fixture
async def refused():
    """Send a request that is answered 403 with a message; return what the client notes of it."""

    said = [None]

    async def forbid(_request):
        return web.json_response({"message": said[0], "code": 403}, status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forbid)
    async with TestServer(app) as server:
        api = KubeApi(Credentials(Files(root=str(server.make_url("")).rstrip("/"))))

        async def ask(message):
            said[0] = message
            with pytest.raises(errors.KubeError, match="HTTP 403"):
                await api.create(KURYRPORTS, BODY)
            return not api.refusals.none()

        yield ask
        await api.close()


@pytest.mark.parametrize("message", UNAUTHORIZED.values(), ids=UNAUTHORIZED)
async def test_403_of_the_authorizer_is_a_missing_permission(refused, message):
    assert await refused(message)


@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED)
async def test_403_about_an_object_is_no_missing_permission(refused, message):
    assert not await refused(message)


async def test_403_about_an_object_shows_that_the_permission_is_there(refused):
    assert await refused(UNAUTHORIZED["one object"])
    assert not await refused(REFUSED["quota"])
