"""Which NeutronPort a Pod could have, and what a new one is to be like; pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import InterfaceRequest, NeutronPortAwaited, NoNeutronPort
from kuryr_k8s.drivers.multi_vif.annotations import shown
from kuryr_k8s.drivers.named.asked import Asked
from kuryr_k8s.k8s.resources import IPAMCLAIMS
from kuryr_k8s.model.network_selection import MOST_INTERFACES
from kuryr_k8s.model.neutronport import (
    CLAIM,
    FAILED,
    FINALIZER,
    MADE_FOR,
    RESERVED_FOR,
    NeutronPort,
)
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
NEUTRON_PORT = "openstack.org/neutron_port"
NEUTRON_PORTS = "openstack.org/neutron_ports"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REQUIREMENT = re.compile(r"([^=!,\s]+)\s*(=|==|!=)\s*([^=!,\s]*)")
UNSUITABLE = "is not as the Pod's annotations say"
SOON = 2.0  # seconds until the NeutronPort of a Pod that is gone is looked for again


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label that a NeutronPort must have, or must not have."""

    key: str
    value: str
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which NeutronPorts a Pod could have.

    :param name: of the only one; empty: any.
    :param sticky: it stays reserved for a Pod of this name.
    :param claim_uid: of the IPAMClaim whose port it has to be; empty: of none.
    :param is_further: it is one of several that the Pod names besides that of its default
        interface, and ``others`` are the names of all these.
    :param asked: what else the Pod asks for, and ``request`` what that stands for.
    :param member_groups: by which load balancers and nodes reach Pods: they do not count.
    """

    pod: Pod
    name: str
    labels: tuple[Label, ...]
    sticky: bool
    claim_uid: str = ""
    is_further: bool = False
    others: tuple[str, ...] = ()
    asked: Asked
    request: InterfaceRequest
    member_groups: frozenset[str] = frozenset()

    @property
    def awaited_name(self) -> str:
        """The name of the only one that it can be, or is to be; empty: it may be any."""
        return self.name or ("" if self.labels else self.pod.name)

    def suits(self, port: NeutronPort) -> bool:
        """Return whether the Pod could have the NeutronPort, if nobody has it."""
        if port.namespace != self.pod.namespace or self.name not in ("", port.name):
            return False
        if port.claim_uid != self.claim_uid:
            return False
        if not self.is_further and (port.is_on_device or port.name in self.others):
            return False
        if any(((each.key, each.value) in port.labels) != each.must for each in self.labels):
            return False
        return not port.port_id or self._fits(port)

    def may_have(self, port: NeutronPort) -> bool:
        """Return whether the Pod could have the NeutronPort as it is."""
        return port.is_free_for(self.pod.name, self.pod.identity) and self.suits(port)

    def rank(self, port: NeutronPort) -> tuple[bool, bool, int, int]:
        """Return what sorts the NeutronPorts that the Pod could have, the best one first.

        What was changed last comes last: others may still know a freed address as that of the Pod
        before.
        """
        hint = port.spec.host_hint
        return (
            port.reserved_for != self.pod.name,
            port.pod_uid != self.pod.identity,
            0 if hint == self.pod.node else 1 if hint is None else 2,
            int(port.resource_version),
        )

    def _fits(self, port: NeutronPort) -> bool:
        """Return whether a port in Neutron is what the Pod's annotations ask for."""
        request, asked = self.request, self.asked
        if asked.names_network:
            network = request.pod_network
            has = set(port.subnet_ids)  # besides automatic ones, which every port has
            if port.network_id != network.network.id or not any(
                has.issuperset(choice.asked_subnet_ids) for choice in network.choices
            ):
                return False
        return (
            any(port.ips.issuperset(choice) for choice in request.choices_of_addresses)
            and request.mac in (None, port.mac)
            and self._has_groups(port)
            and request.port_security in (None, port.port_security)
            and request.qos_policy_id in (None, port.qos_policy_id)
            and (not request.address_pairs or set(request.address_pairs) == set(port.spec.pairs))
        )

    def _has_groups(self, port: NeutronPort) -> bool:
        """Return whether a port has the security groups that the Pod asks for."""
        if _groups_of(self.asked) is None:
            return True
        wanted = set(self.request.security_groups or ())
        return wanted.symmetric_difference(port.groups) <= self.member_groups


def _groups_of(asked: Asked) -> tuple[str, ...] | None:
    """Return the security groups that are asked for; a port without port security has none."""
    return None if asked.port_security is False else asked.groups


def read_choice(text: str) -> tuple[str, tuple[Label, ...]]:
    """Read the annotation by which a Pod chooses NeutronPorts.

    :returns: a name, or labels: ``key=value`` and ``key!=value``, with commas between them.
    :raises errors.Refused: it cannot be read.
    """
    text = text.strip()
    if not text or _NAME.fullmatch(text):
        return text, ()
    labels = []
    for each in text.split(","):
        read = _REQUIREMENT.fullmatch(each.strip())
        if read is None:
            raise errors.Refused(
                f"annotation {NEUTRON_PORT} is neither the name of a NeutronPort nor a list of "
                f"labels (key=value): {shown(text)}"
            )
        labels.append(Label(key=read[1], value=read[3], must=read[2] != "!="))
    return "", tuple(labels)


def read_names(text: str) -> tuple[str, ...]:
    """Read the annotation that names NeutronPorts for further interfaces, with commas between.

    :raises errors.Refused: it cannot be read, or names one twice, or too many.
    """
    names = tuple(each.strip() for each in text.split(",")) if text.strip() else ()
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise errors.Refused(
                f"annotation {NEUTRON_PORTS} is no list of names of NeutronPorts (a,b), each "
                f"named once: {shown(text)}"
            )
    if len(names) > MOST_INTERFACES:
        raise errors.Refused(
            f"annotation {NEUTRON_PORTS}: a Pod may have {MOST_INTERFACES} interfaces"
        )
    return names


def refuse(wish: Wish, found: NeutronPort | None) -> errors.KuryrError:
    """Return why a Pod does not get a NeutronPort now.

    :param found: of the name that the Pod names, or that one made for it would have.
    """
    if found is None:
        return NoNeutronPort(_nothing(wish), wish)
    name, pod, bound_to = f"NeutronPort {found.name}", wish.pod, found.bound_to
    if bound_to is not None and bound_to.uid == pod.identity:
        if wish.suits(found):  # it was bound for an earlier KuryrPort of the Pod
            return NeutronPortAwaited(f"{name} is taken back first", SOON, wish)
        return NoNeutronPort(f"{name} {UNSUITABLE}", wish)
    goes_with = found.pod_name if found.pod_uid not in ("", pod.identity) else ""
    if pod.name in (goes_with, bound_to.name if bound_to else ""):  # which is gone by now
        return NeutronPortAwaited(f"{name} is that of the Pod before", SOON, wish)
    if found.deleting and bound_to is None:
        return NeutronPortAwaited(f"{name} is being deleted", SOON, wish)
    if bound_to is not None:
        words = f"is bound to Pod {bound_to}"
    elif found.reserved_for not in ("", pod.name):
        words = f"is reserved for Pod {found.reserved_for}"
    elif goes_with:
        words = f"was made for Pod {goes_with}"
    elif found.claim_uid != wish.claim_uid:
        words = (
            f"is not that of {CLAIM} {found.name}" if wish.claim_uid else f"is that of an {CLAIM}"
        )
    elif found.is_on_device and not wish.is_further:
        words = f"is for a VF: name it in {NEUTRON_PORTS}"
    elif not wish.suits(found):
        words = UNSUITABLE
    elif found.phase == FAILED and found.ready is not None:
        words = f"has failed: {found.ready.message}"
    else:
        return NeutronPortAwaited(f"{name} has no port yet", SOON, wish)
    return NoNeutronPort(f"{name} {words}", wish)


def refuse_lost(wish: Wish, port: NeutronPort) -> errors.KuryrError:
    """Return why a Pod does not get the NeutronPort that is bound to it: its port was lost."""
    if port.phase == FAILED and port.ready is not None:
        return NoNeutronPort(f"NeutronPort {port.name} has failed: {port.ready.message}", wish)
    return NeutronPortAwaited(f"the port of NeutronPort {port.name} is made again", SOON, wish)


def _nothing(wish: Wish) -> str:
    if wish.name:
        return f"there is no NeutronPort {wish.name}"
    which = "has the labels that the Pod selects" if wish.labels else "is as the Pod asks"
    return f"no NeutronPort that is Available {which}"


def new_port(wish: Wish, taken: Collection[str]) -> Json:
    """Return a NeutronPort for a Pod, with what the Pod asks for.

    :param taken: addresses that others have, as far as is known.
    """
    pod = wish.pod
    name = wish.awaited_name
    meta: Json = {"namespace": pod.namespace, "name": name, "finalizers": [FINALIZER]}
    if wish.claim_uid:
        meta["ownerReferences"] = [
            {
                "apiVersion": IPAMCLAIMS.api_version,
                "kind": CLAIM,
                "name": name,
                "uid": wish.claim_uid,
            }
        ]
    elif wish.sticky:
        meta["annotations"] = {RESERVED_FOR: pod.name}
    else:
        meta["annotations"] = {MADE_FOR: f"{pod.name}/{pod.identity}"}
        if not pod.static:  # the mirror of one is deleted and made again while the Pod runs on
            meta["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
            ]
    asked, choices = wish.asked, wish.request.choices_of_addresses
    groups = _groups_of(asked)
    free = {address for choice in choices for address in choice}.difference(taken)
    addresses = next((each for each in choices if free.issuperset(each)), choices[0])
    pairs = [{"ipAddress": ip, **({"macAddress": mac} if mac else {})} for ip, mac in asked.pairs]
    spec = {
        "network": asked.network,
        "subnets": list(asked.subnets) or None,
        "fixedIPs": list(addresses) or None,
        "macAddress": asked.mac,
        "securityGroups": None if groups is None else list(groups),  # none are not those of Pods
        "portSecurity": asked.port_security,
        "allowedAddressPairs": pairs or None,
        "qosPolicy": asked.qos,
    }
    return {
        "metadata": meta,
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
