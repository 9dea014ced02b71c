"""NeutronPortPool (``openstack.org/v1``), NeutronPorts that are made before Pods want them.

spec:   min, max, ttlSeconds; template: labels and specification of its NeutronPorts
status: available, bound, pending, failed (how many there are), conditions, observedGeneration

Its NeutronPorts name it as their controller (``metadata.ownerReferences``), and go with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from kuryr_k8s.model.condition import READY, Condition
from kuryr_k8s.model.neutronport import API_VERSION, POOL, NeutronPort, Spec

Json = dict[str, Any]
# on its NeutronPorts, with its name, so that Pods can select them
POOL_LABEL = "openstack.org/neutron-port-pool"
COUNTED = ("available", "bound", "pending", "failed")  # fields of the status
# the fields of a NeutronPort's specification that can change; portSecurity cannot be removed
CHANGEABLE = (
    "allowedAddressPairs",
    "floatingIP",
    "hostHint",
    "qosPolicy",
    "reclaimPolicy",
    "securityGroups",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeutronPortPool:
    """A NeutronPortPool as the caches keep it.

    :param minimum: so many NeutronPorts are Available at least.
    :param maximum: so many are at most; 0: any number.
    :param ttl: in seconds: those beyond the minimum that have been Available for so long go; 0:
        they stay.
    :param labels: of its NeutronPorts.
    :param template: the specification of its NeutronPorts, as JSON; ``spec``: the same, read.
    :param counts: how many NeutronPorts there are, as last written.
    :param observed: the generation of the specification that they are as.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    deleting: bool
    minimum: int
    maximum: int
    ttl: float
    labels: Mapping[str, str]
    template: Json = field(compare=False)
    spec: Spec
    counts: Mapping[str, int]
    observed: int
    ready: Condition | None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a NeutronPortPool from the API's JSON."""
        meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
        template = (spec.get("template") or {}).get("spec") or {}
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            generation=meta["generation"],
            deleting="deletionTimestamp" in meta,
            minimum=spec["min"],
            maximum=spec.get("max") or 0,
            ttl=float(spec.get("ttlSeconds") or 0),
            labels={**labels, POOL_LABEL: meta["name"]},
            template=template,
            spec=Spec.read(template),
            counts={name: status[name] for name in COUNTED if name in status},
            observed=status.get("observedGeneration") or 0,
            ready=Condition.read(conditions[READY]) if READY in conditions else None,
        )

    def new_port(self, name: str) -> Json:
        """Return a NeutronPort of the pool."""
        owner = {"apiVersion": API_VERSION, "kind": POOL, "name": self.name, "uid": self.uid}
        return {
            "metadata": {
                "namespace": self.namespace,
                "name": name,
                "labels": dict(self.labels),
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": dict(self.template),
        }

    def is_like(self, port: NeutronPort) -> bool:
        """Return whether a NeutronPort is as the template says, but for what never changes."""
        wanted = replace(
            port.spec,
            security_groups=self.spec.security_groups,
            pairs=self.spec.pairs,
            qos_policy=self.spec.qos_policy,
            floating_ip=self.spec.floating_ip,
            host_hint=self.spec.host_hint,
            retains=self.spec.retains,
        )
        if self.spec.port_security is not None:
            wanted = replace(wanted, port_security=self.spec.port_security)
        return port.spec == wanted and port.labels.issuperset(self.labels.items())

    def changes(self, port: NeutronPort) -> Json:
        """Return the patch that makes a NeutronPort of the pool as the template says."""
        spec = {name: self.template.get(name) for name in CHANGEABLE}
        if "portSecurity" in self.template:
            spec["portSecurity"] = self.template["portSecurity"]
        elif port.spec.port_security is False and (self.spec.security_groups or self.spec.pairs):
            spec["portSecurity"] = True  # without it there can be none of these
        return {"metadata": {"labels": dict(self.labels)}, "spec": spec}
