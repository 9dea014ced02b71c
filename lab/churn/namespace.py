"""A namespace for the Pods of one run, without anything of an earlier one."""

from __future__ import annotations

from lab import facts
from lab.kubernetes.client import Kube, KubeError
from lab.lifecycle.lab import Lab
from lab.process import wait_until


class PodNamespace:
    """A namespace for the Pods, deleted together with them."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._kube = Kube(facts.load(lab.paths.facts))
        self._name = name
        self._path = f"/api/v1/namespaces/{name}"

    def __enter__(self) -> None:
        self.__exit__()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name}}
        self._kube.call("POST", "/api/v1/namespaces", body)
        wait_until(lambda: self._exists("/serviceaccounts/default"), 30)

    def __exit__(self, *_: object) -> None:
        if self._exists():
            self._kube.call("DELETE", f"{self._path}/pods")
            wait_until(lambda: not self._kube.items(f"{self._path}/pods"), 120, pause=0.2)
            self._kube.call("DELETE", self._path)
            wait_until(lambda: not self._exists(), 120, pause=0.2)

    def _exists(self, below: str = "") -> bool:
        try:
            self._kube.call("GET", self._path + below)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return True
