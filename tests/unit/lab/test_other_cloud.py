"""A lab that was made with other services is forgotten; what does not refer to its cloud stays."""

from lab.lifecycle import cleanup
from lab.paths import Paths


def test_databases_nodes_and_product_of_a_cloud_go_and_certificates_and_logs_stay(tmp_path):
    paths = Paths(tmp_path / "cache", tmp_path / "state")
    paths.create()
    gone = ("data/mariadb", "data/etcd", "nodes/node1/ovs", "kuryr/venv", "run/amp/amp-1")
    kept = ("pki", "logs", "run/reports")
    for directory in (*gone, *kept):
        (paths.state / directory).mkdir(parents=True, exist_ok=True)
        (paths.state / directory / "file").write_text("x")
    (paths.state / "lab.json").write_text("{}")
    (paths.state / "settings.json").write_text("{}")
    cleanup.forget_cloud(paths)
    files = {
        str(each.relative_to(paths.state)) for each in paths.state.rglob("*") if each.is_file()
    }
    assert files == {"settings.json", *(f"{directory}/file" for directory in kept)}
    assert list(paths.data.iterdir()) == []
