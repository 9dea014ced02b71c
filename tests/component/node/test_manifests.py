"""A real API server accepts the manifests of etc/, and the Pods that are made from them."""

import pytest
import yaml

from tests.kit.kube.client import KubeRefusal
from tests.kit.paths import ETC

# nothing is kept, and an unknown or a doubled field is an error
CHECK = {"dryRun": "All", "fieldValidation": "Strict"}
MANIFESTS = [
    document
    for path in sorted((ETC / "manifests").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
WORKLOADS = [each for each in MANIFESTS if each["kind"] == "DaemonSet"]
CLASSES = [each for each in MANIFESTS if each["kind"] == "IngressClass"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["metadata"]["name"])
async def test_workload_and_its_pod_are_accepted(shipped_permissions, workload):
    client = shipped_permissions.client
    namespace = workload["metadata"]["namespace"]
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    await client.request("POST", path, workload, **CHECK)
    template = workload["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": workload["metadata"]["name"]}
    made = await client.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod, **CHECK)
    assert made["spec"]["priority"] > 1_000_000_000  # admission knows the class


async def test_class_of_ingresses_is_accepted(shipped_permissions):
    [wanted] = CLASSES
    path = "/apis/networking.k8s.io/v1/ingressclasses"
    made = await shipped_permissions.client.request("POST", path, wanted, **CHECK)
    assert made["spec"]["controller"] == wanted["spec"]["controller"]


async def test_a_field_that_does_not_exist_would_be_refused(shipped_permissions):
    workload = yaml.safe_load(yaml.safe_dump(WORKLOADS[0]))
    workload["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    path = f"/apis/apps/v1/namespaces/{workload['metadata']['namespace']}/daemonsets"
    with pytest.raises(KubeRefusal) as refusal:
        await shipped_permissions.client.request("POST", path, workload, **CHECK)
    assert "volumeMount" in str(refusal.value)
