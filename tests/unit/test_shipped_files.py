"""What lies in etc/ fits the package: programs, permissions, objects."""

import configparser
import re

import pytest
import yaml

from kuryr_k8s.k8s import resources
from kuryr_k8s.model import kuryrportpool
from lab.kuryr.sandbox.unit import Unit
from tests.kit.paths import REPOSITORY

ETC = REPOSITORY / "etc"
MANIFESTS = sorted(ETC.glob("*/*.yaml"))
UNITS = sorted(ETC.glob("systemd/*.service"))


def documents(*directories):
    paths = [path for name in directories for path in (ETC / name).glob("*.yaml")]
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


def scripts():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    return {line.split("=")[0].strip() for line in lines}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_is_made_of_objects(path):
    for document in yaml.safe_load_all(path.read_text()):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()


def test_pods_run_programs_and_accounts_that_exist():
    accounts = {
        account["metadata"]["name"]
        for account in documents("rbac")
        if account["kind"] == "ServiceAccount"
    }
    for workload in documents("manifests"):
        spec = workload["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["containers"][0]["command"][0] in scripts()
        mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_starts_a_program_that_exists_and_says_when_it_is_ready(path):
    unit = path.read_text()
    program = re.search(r"^ExecStart=/usr/bin/(\S+)", unit, re.M).group(1)
    assert program in scripts()
    assert "Type=notify" in unit
    assert "RestartPreventExitStatus=2" in unit


def test_controllers_pod_may_do_no_more_than_its_unit():
    (controller,) = (
        workload for workload in documents("manifests") if workload["kind"] == "Deployment"
    )
    context = controller["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    unit = Unit.read(ETC / "systemd" / "kuryr-k8s-controller.service")
    assert unit.capabilities() == frozenset()
    assert unit.text("User", "root") != "root"
    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_nobody_is_granted_a_wildcard():
    for role in documents("rbac"):
        for rule in role.get("rules", ()):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def crds():
    return {crd["metadata"]["name"]: crd["spec"] for crd in documents("crds")}


def test_crds_are_the_resources_that_we_speak_of():
    ours = (resources.KURYRPORTS, resources.KURYRPORTPOOLS)
    assert crds().keys() == {f"{resource.plural}.{resource.group}" for resource in ours}
    for resource in ours:
        spec = crds()[f"{resource.plural}.{resource.group}"]
        assert spec["versions"][0]["name"] == resource.version
        assert spec["names"]["kind"] == resource.kind
        assert (spec["scope"] == "Namespaced") is resource.namespaced


def test_daemons_can_select_the_kuryrports_of_their_node():
    version = crds()["kuryrports.openstack.org"]["versions"][0]
    assert version["selectableFields"] == [{"jsonPath": ".spec.podNodeName"}]


def test_what_the_controller_writes_into_a_pool_is_what_the_crd_asks_for():
    (version,) = crds()["kuryrportpools.openstack.org"]["versions"]
    ports = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ports"]
    entry = kuryrportpool.park_entry("fa:16:3e:00:00:01", ["10.0.0.5"], None, "br-int")
    assert entry.keys() == set(ports["additionalProperties"]["required"])
    assert entry.keys() == ports["additionalProperties"]["properties"].keys()
    states = ports["additionalProperties"]["properties"]["state"]["enum"]
    assert states == [kuryrportpool.KEEP, kuryrportpool.REMOVE]
