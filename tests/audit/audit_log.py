"""Requests of our accounts in an API server's audit log."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.kit.node_credentials import AGENT as THIEF

# Users of the lab's cluster, and those of the component tests, which have the same permissions.
ACCOUNTS = {
    "system:serviceaccount:kube-system:kuryr-controller": "kuryr-controller",
    "system:serviceaccount:kube-system:kuryr-daemon": "kuryr-daemon",
    "controller": "kuryr-controller",
    "daemon": "kuryr-daemon",
}
# Admission refuses in these words what roles allow: a namespace that ends, rules of tests.
TERMINATING = "because it is being terminated"
ABOUT_OBJECTS = (TERMINATING, "exceeded quota: ", "ValidatingAdmissionPolicy 'not-test-")
PERMISSIONS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
# the first request of an informer: a list, or from Kubernetes 1.35 on a watch that begins with one
INITIAL = ("resourceVersion=0", "sendInitialEvents=true")
RBAC_GROUP = "rbac.authorization.k8s.io"
ABSORBING = timedelta(seconds=2)  # from the answer of a list until the authorizer knows it
BEGINNING = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Request:
    """One request, as it was answered."""

    account: str
    verb: str
    group: str
    resource: str  # with its subresource
    namespace: str
    name: str
    code: int
    decision: str  # the authorizer's: allow or forbid
    message: str
    when: datetime
    answered: datetime
    identity: str

    @property
    def refused(self):
        """Whether permissions refused it, and not what it is about."""
        about_object = any(words in self.message for words in ABOUT_OBJECTS)
        return self.code == 403 and not (self.decision == "allow" and about_object)

    def __str__(self):
        where = f" in {self.namespace}" if self.namespace else ""
        what = f"{self.verb} {self.resource}.{self.group} «{self.name}»{where}"
        return f"{self.when:%H:%M:%S} {self.account}: {what}: {self.decision}, {self.message}"


def files(path):
    """The log and what was rotated away of it, oldest first."""
    return [*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path]


def requests(path, since):
    """Requests of our accounts from `since` on; each once, though a watch has two entries.

    What a test tried with a stolen token was no request of ours.
    """
    found = {}
    for file in files(path):
        with file.open() as lines:
            for line in lines:
                # most entries are other people's; a torn last line is no entry yet
                ours = any(f'"username":"{user}"' in line for user in ACCOUNTS)
                if ours and "\n" in line and f'"userAgent":"{THIEF}"' not in line:
                    request = _read(json.loads(line))
                    if request.when >= since:
                        found[request.identity] = request
    return list(found.values())


@dataclass(frozen=True)
class Start:
    """The start of an API server, which refuses all until it has read the roles and bindings.

    It answers others some time before `begin`, its first request to itself.
    """

    begin: datetime
    loaded: datetime

    def covers(self, request, requests):
        """Return whether this server could refuse the request though it is granted.

        :param requests: all of the log. One that was answered before `begin`, and granted, had its
            answer from the server before, and so had those that came earlier. One that came before
            `begin` may have queued until the permissions were read: the authorizer comes after the
            queue.
        """
        if request.when > self.loaded + ABSORBING:
            return False
        return not any(
            request.when < other.when and other.answered < self.begin and other.decision == "allow"
            for other in requests
        )


def starts(path, since):
    """Return the starts of API servers; each server has a uid of its own among its users."""
    begun, loaded = {}, {}
    for file in files(path):
        with file.open() as lines:
            for line in lines:
                if '"username":"system:apiserver"' not in line:
                    continue
                about_permissions = '"verb":"watch"' in line and RBAC_GROUP in line
                if '"verb":"list"' not in line and not about_permissions:
                    continue
                entry = json.loads(line)
                server = entry["user"]["uid"]
                begun.setdefault(server, _moment(entry["requestReceivedTimestamp"]))
                # what its informers ask, and not the lists of what repairs the default roles
                asks = any(words in entry["requestURI"] for words in INITIAL)
                ends = entry["verb"] == "watch" and entry["stage"] == "ResponseComplete"
                if entry["objectRef"].get("resource") in PERMISSIONS and asks and not ends:
                    loaded[server] = _moment(entry["stageTimestamp"])
    found = [Start(begun[server], moment) for server, moment in loaded.items()]
    return [start for start in found if start.loaded >= since]


def _read(entry):
    about = entry.get("objectRef", {})
    subresource = about.get("subresource")
    status = entry.get("responseStatus", {})
    return Request(
        account=ACCOUNTS[entry["user"]["username"]],
        verb=entry["verb"],
        group=about.get("apiGroup", ""),
        resource=about.get("resource", entry["requestURI"])
        + (f"/{subresource}" if subresource else ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=status.get("code", 0),
        decision=entry.get("annotations", {}).get("authorization.k8s.io/decision", ""),
        message=status.get("message", ""),
        when=_moment(entry["requestReceivedTimestamp"]),
        answered=_moment(entry["stageTimestamp"]),
        identity=entry["auditID"],
    )


def _moment(text):
    return datetime.fromisoformat(text)
