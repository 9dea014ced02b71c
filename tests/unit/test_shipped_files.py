"""What lies in etc/ fits the package: programs, permissions, objects."""

import configparser
import re

import pytest
import yaml

from kuryr_k8s.config.reading import read
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


def package():
    """Return setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    return setup


def scripts():
    lines = package()["options.entry_points"]["console_scripts"].strip().splitlines()
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
    for each in documents("manifests"):
        if each["kind"] == "IngressClass":
            continue
        spec = each["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["containers"][0]["command"][0] in scripts()
        mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


def workload(name):
    """Return the workload of that name in etc/manifests, its Pods' spec and their container."""
    (found,) = (each for each in documents("manifests") if each["metadata"]["name"] == name)
    spec = found["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return found, spec, container


def node_paths(spec):
    """Return the path on the node of each volume of the spec that has one."""
    volumes = [volume for volume in spec["volumes"] if "hostPath" in volume]
    return {volume["name"]: volume["hostPath"]["path"] for volume in volumes}


PORTS = {"kuryr-controller": 8082, "kuryr-daemon": 8090}
WORKLOADS = tuple(PORTS)


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_are_replaced_on_their_node_so_that_a_rollout_needs_no_other_one(name):
    found, spec, _ = workload(name)
    assert found["kind"] == "DaemonSet"
    assert found["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert found["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    assert "affinity" not in spec


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_run_on_tainted_nodes_before_there_is_a_network(name):
    _, spec, _ = workload(name)
    assert spec["hostNetwork"]
    assert spec["dnsPolicy"] == "Default"
    assert {"operator": "Exists"} in spec["tolerations"]
    assert spec["priorityClassName"].startswith("system-")


def test_controllers_run_on_masters_and_daemons_everywhere():
    _, controller, _ = workload("kuryr-controller")
    _, daemon, _ = workload("kuryr-daemon")
    assert controller["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert "nodeSelector" not in daemon


@pytest.mark.parametrize(("name", "port"), list(PORTS.items()))
def test_probes_ask_the_health_server(name, port):
    _, _, container = workload(name)
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"host": "127.0.0.1", "path": path, "port": port}
    config = read(["--config-file", str(ETC / "kuryr.conf.sample")], "test")
    assert {
        "kuryr-controller": config.health_server.port,
        "kuryr-daemon": config.cni_health_server.port,
    } == PORTS


def test_daemon_sees_what_is_mounted_and_made_anew_in_run():
    _, spec, container = workload("kuryr-daemon")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "run")
    assert (mount["mountPath"], mount["mountPropagation"]) == ("/run", "HostToContainer")
    assert node_paths(spec)["run"] == "/run"


def test_daemon_installs_the_plugin_where_the_directories_of_the_node_are(monkeypatch):
    _, spec, container = workload("kuryr-daemon")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", ""))
    config = read(["--config-file", str(ETC / "kuryr.conf.sample")], "test").cni_daemon
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = node_paths(spec)
    assert paths[mounts[config.cni_bin_dir]] == "/opt/cni/bin"
    assert paths[mounts[config.cni_conf_dir]] == "/etc/cni/net.d"


def test_image_has_the_version_of_the_package():
    version = package()["metadata"]["version"]
    images = {workload(name)[2]["image"] for name in WORKLOADS}
    assert images == {f"kuryr-k8s:{version}"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_starts_a_program_that_exists_and_says_when_it_is_ready(path):
    unit = path.read_text()
    program = re.search(r"^ExecStart=/usr/bin/(\S+)", unit, re.M).group(1)
    assert program in scripts()
    assert "Type=notify" in unit
    assert "RestartPreventExitStatus=2" in unit


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_waits_for_nothing_that_waits_for_it_and_is_never_given_up(path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(path)
    assert unit["Unit"].keys().isdisjoint({"Before", "Requires", "BindsTo", "Requisite"})
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["Restart"] == "always"
    assert int(unit["Service"]["WatchdogSec"]) > 0


def test_controllers_pod_may_do_no_more_than_its_unit():
    context = workload("kuryr-controller")[2]["securityContext"]
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
    ours = (
        resources.KURYRPORTS,
        resources.KURYRPORTPOOLS,
        resources.NEUTRONPORTS,
        resources.NEUTRONPORTPOOLS,
        resources.L7ROUTERS,
    )
    assert crds().keys() == {f"{resource.plural}.{resource.group}" for resource in ours}
    for resource in ours:
        spec = crds()[f"{resource.plural}.{resource.group}"]
        assert spec["versions"][0]["name"] == resource.version
        assert spec["names"]["kind"] == resource.kind
        assert (spec["scope"] == "Namespaced") is resource.namespaced


def test_crd_of_others_that_we_speak_of_is_optional_and_of_the_same_kind():
    [crd] = documents("crds/optional")
    resource, spec = resources.ROUTES, crd["spec"]
    assert crd["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    assert spec["versions"][0]["name"] == resource.version
    assert spec["names"]["kind"] == resource.kind


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
