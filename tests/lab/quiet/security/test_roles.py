"""The roles that README asks for are enough, and one less is not."""

from pathlib import Path

import pytest

from lab.kuryr import credential
from lab.kuryr.installation import CLUSTER_TAG, CONTROLLER
from lab.openstack.rest import Api, ApiError
from lab.process import environment_of

pytestmark = pytest.mark.lab_only


def neutron_by(cluster, roles):
    """Neutron by a new credential of the user kuryr, with these roles."""
    auth = credential.clouds(Path(cluster.lab.cloud.clouds_yaml), roles)["clouds"]["kuryr"]["auth"]
    known = {
        "id": auth["application_credential_id"],
        "secret": auth["application_credential_secret"],
    }
    identity = {"methods": ["application_credential"], "application_credential": known}
    body = {"auth": {"identity": identity}}
    headers = Api(auth["auth_url"]).call("POST", "/auth/tokens", body)[1]
    return Api(f"{cluster.lab.cloud.neutron_url}/v2.0", headers["X-Subject-Token"])


def make_port(cluster, neutron):
    """What the controller asks for at first: a port on a host, and its security group."""
    neutron.get(f"/security-groups/{cluster.lab.cloud.security_groups['pods']}")
    wanted = {
        "network_id": cluster.lab.cloud.networks["pods"].id,
        "device_owner": "compute:kuryr",
        "binding:host_id": "chassis1",
    }
    port = neutron.post("/ports", {"port": wanted})["port"]
    try:
        neutron.put(f"/ports/{port['id']}/tags", {"tags": [CLUSTER_TAG]})
    finally:
        neutron.delete(f"/ports/{port['id']}")
    return port


def test_member_and_service_are_enough(cluster):
    port = make_port(cluster, neutron_by(cluster, credential.ROLES))
    assert port["binding:host_id"] == "chassis1"


@pytest.mark.parametrize("role", credential.ROLES)
def test_neither_role_is_enough_alone(cluster, role):
    with pytest.raises(ApiError) as refused:
        make_port(cluster, neutron_by(cluster, (role,)))
    assert refused.value.status in (403, 404)


def test_only_the_controller_has_an_account_and_no_password(cluster):
    for name, record in cluster.supervisor.records().items():
        if not name.startswith("kuryr-"):
            continue
        environment = environment_of(record.process.pid)
        clouds = environment.get("OS_CLIENT_CONFIG_FILE")
        assert (clouds is not None) is (name == CONTROLLER)
        assert clouds is None or "password" not in Path(clouds).read_text()
        texts = [
            Path(argument.removeprefix("--config-file=")).read_text()
            for argument in record.component.argv
            if argument.startswith("--config-file=")
        ]
        assert not any(line.startswith("password") for text in texts for line in text.splitlines())
