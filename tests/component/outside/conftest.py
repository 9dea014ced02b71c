"""Fixtures of these tests."""

import pytest
import yaml

GROUP = "example.org"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"networkreports.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": "NetworkReport",
            "listKind": "NetworkReportList",
            "plural": "networkreports",
            "singular": "networkreport",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
RULES = [
    {"apiGroups": [GROUP], "resources": ["networkreports"], "verbs": ["list", "watch", "get"]},
    {"apiGroups": [GROUP], "resources": ["networkreports/status"], "verbs": ["patch"]},
]
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
async def network_reports(stage, tmp_path):
    """The kind and its permissions, as the package's own manifests have them; makes reports."""
    directory = tmp_path / "crds"
    directory.mkdir()
    (directory / "networkreports.yaml").write_text(yaml.safe_dump(CRD))
    await stage.cluster.install_crds(directory)
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kuryr-example"},
        "rules": RULES,
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kuryr-example"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "kuryr-example"},
        "subjects": [{"kind": "User", "name": "controller", "apiGroup": RBAC}],
    }
    for manifest in (role, binding):
        await stage.client.create(manifest)

    def make(name):
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "NetworkReport",
            "metadata": {"name": name, "namespace": stage.cluster.namespace},
        }

    yield make
    for kind in ("clusterrolebindings", "clusterroles"):
        await stage.client.delete(f"/apis/{RBAC}/v1/{kind}/kuryr-example")
