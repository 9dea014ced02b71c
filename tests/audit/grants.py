"""What etc/rbac grants, taken apart: one verb on one resource each."""

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, order=True)
class Grant:
    """One verb; `namespace` and `name` are empty where the rule does not limit them."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, request):
        """Whether a request of the audit log is allowed by this."""
        return (
            (self.account, self.verb, self.group, self.resource)
            == (request.account, request.verb, request.group, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )

    def __str__(self):
        what = f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"
        named = f" «{self.name}»" if self.name else ""
        return f"{self.account}: {what}{named}{f' in {self.namespace}' if self.namespace else ''}"


# What only programs of the version before ask for, which work on while they are replaced.
OF_THE_VERSION_BEFORE = {
    Grant(
        "kuryr-controller",
        "patch",
        "coordination.k8s.io",
        "leases",
        "kube-system",
        "kuryr-k8s-controller",
    )
}

# What programs ask for only with options that the lab does not set, or after losses that its tests
# in `make test` do not cause: tests/component/nodes, tests/component/pools and tests/node do.
NOT_ON_THE_LAB = {
    Grant("kuryr-controller", "patch", "", "nodes"),
    Grant("kuryr-controller", "delete", "openstack.org", "kuryrportpools"),
    Grant("kuryr-daemon", "create", "events.k8s.io", "events"),
    Grant("kuryr-controller", "get", "", "secrets"),
    Grant("kuryr-controller", "patch", "route.openshift.io", "routes"),
    Grant("kuryr-controller", "get", "resource.k8s.io", "resourceclaims"),
    Grant("kuryr-daemon", "get", "resource.k8s.io", "resourceclaims"),
    Grant("kuryr-daemon", "list", "resource.k8s.io", "resourceslices"),
}

# The server asks for this where a server-side apply creates the object; the log says «patch».
OF_AN_APPLY = {
    Grant("kuryr-controller", "create", "", "configmaps", "kube-system", "kuryr-l7-router")
}


def unused(granted, uses):
    """Return the grants that programs of this version never used, and should have.

    :param uses: how often each one was used.
    """
    excused = OF_THE_VERSION_BEFORE | NOT_ON_THE_LAB | OF_AN_APPLY
    return {grant for grant in granted - excused if not uses.get(grant)}


def shipped(directory):
    """All grants of a directory with roles and bindings, which are in one file each pair."""
    documents = [
        document
        for path in directory.rglob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
    ]
    roles = {
        (
            document["kind"],
            document["metadata"]["name"],
            document["metadata"].get("namespace", ""),
        ): document["rules"]
        for document in documents
        if document["kind"] in ("Role", "ClusterRole")
    }
    grants = set()
    for binding in documents:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        kind, role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        rules = roles[(kind, role, namespace if kind == "Role" else "")]
        for subject in binding["subjects"]:
            grants |= {
                grant for rule in rules for grant in of_rule(rule, subject["name"], namespace)
            }
    return grants


def of_rule(rule, account, namespace=""):
    """Return the grants of one rule of a role."""
    return {
        Grant(account, verb, group, resource, namespace, name)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
    }
