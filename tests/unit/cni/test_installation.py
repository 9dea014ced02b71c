"""The CNI configuration that the daemon installs."""

import pytest

from kuryr_k8s import config
from kuryr_k8s.cni import installation


def install(directory, selection):
    """Install the program and the configuration in two directories below this one."""
    path = directory / "kuryr.conf"
    path.write_text(
        f"[kubernetes]\npod_selection = {selection}\n"
        f"[cni_daemon]\ncni_bin_dir = {directory}/bin\ncni_conf_dir = {directory}/net.d\n"
    )
    installation.prepare(config.read(["--config-file", str(path)], "test"))()


@pytest.mark.parametrize("selection", ["all", "annotated"])
def test_configuration_is_another_plugins_where_pods_are_selected(tmp_path, caplog, selection):
    install(tmp_path, selection)
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["kuryr-cni"]
    assert (tmp_path / "net.d").exists() == (selection == "all")
    assert not caplog.records


def test_configuration_of_an_earlier_daemon_is_told_of(tmp_path, caplog):
    (tmp_path / "net.d").mkdir()
    left = tmp_path / "net.d" / installation.NAME
    left.write_text("{}")
    install(tmp_path, "annotated")
    assert "remove it if an earlier daemon has installed it" in caplog.text
    assert left.read_text() == "{}"
