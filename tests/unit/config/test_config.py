"""The options: the sample is current, and a wrong file ends in one clear line."""

import subprocess
import sys

import pytest

from kuryr_k8s import config, errors
from kuryr_k8s.cloud.connect import connect
from tests.kit.paths import ETC

SAMPLE = ETC / "kuryr.conf.sample"


def test_sample_is_what_the_generator_writes(tmp_path):
    generated = tmp_path / "kuryr.conf.sample"
    command = ["-m", "oslo_config.generator", "--namespace", "kuryr_k8s", "--namespace"]
    subprocess.run(
        [sys.executable, *command, "oslo.log", "--wrap-width", "79", "--output-file", generated],
        check=True,
    )
    assert SAMPLE.read_text() == generated.read_text(), "run tox -e genconfig"


def test_sample_can_be_loaded_as_it_is():
    conf = config.load(["--config-file", str(SAMPLE)], "test")
    assert conf.kubernetes.enabled_handlers == ["vif", "kuryrport", "kuryrportpool", "node"]


def test_options_of_the_ancestor_are_read_under_their_names(tmp_path):
    path = tmp_path / "kuryr.conf"
    path.write_text(
        "[kubernetes]\napi_root = https://api:6443\npod_vif_driver = neutron-vif\n"
        "[neutron_defaults]\nproject = p\npod_subnet = s\npod_security_groups = a,b\n"
        "resource_tags = t\novs_bridge = br-int\nnetwork_device_mtu = 1400\n"
        "[neutron]\nauth_type = password\nauth_url = http://keystone/v3\nusername = u\n"
        "region_name = r\n"
    )
    conf = config.load(["--config-file", str(path)], "test")
    assert conf.neutron_defaults.pod_subnet == ["s"]
    assert conf.neutron_defaults.pod_security_groups == ["a", "b"]
    assert conf.neutron_defaults.network_device_mtu == 1400
    assert connect(conf, connections=1).config.get_region_name() == "r"


def test_missing_file_is_a_wrong_configuration():
    with pytest.raises(errors.ConfigError, match="nowhere"):
        config.load(["--config-file", "/nowhere/kuryr.conf"], "test")


def test_networks_of_node_ports_may_be_addresses(tmp_path):
    path = tmp_path / "kuryr.conf"
    path.write_text("[cni_daemon]\nnode_port_addresses = 192.0.2.1/24, 2001:DB8::1\n")
    conf = config.load(["--config-file", str(path)], "test")
    assert conf.cni_daemon.node_port_addresses == ["192.0.2.0/24", "2001:db8::1/128"]
    path.write_text("[cni_daemon]\nnode_port_addresses = 192.0.2.0/24,primary\n")
    with pytest.raises(errors.ConfigError, match="node_port_addresses"):
        config.load(["--config-file", str(path)], "test")


def test_value_that_cannot_be_read_is_a_wrong_configuration(tmp_path):
    path = tmp_path / "kuryr.conf"
    path.write_text("[kubernetes]\npod_workers = many\n")
    with pytest.raises(errors.ConfigError, match="pod_workers"):
        config.load(["--config-file", str(path)], "test")
