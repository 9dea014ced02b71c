"""Pods that have NeutronPorts: which one a Pod gets, and the record that it is the Pod's.

A Pod names one, or selects some by their labels (``openstack.org/neutron_port``). One that names a
network may have any that is as its annotations say. One that refers to an IPAMClaim has that of
the claim. ``status.boundTo`` of the NeutronPort is written for the resourceVersion that was looked
at: so two Pods never get one.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network
from kuryr_k8s.cloud.neutron.specific_ports import PortInUse, fields_of
from kuryr_k8s.drivers.base import (
    DriverContext,
    InterfaceRequest,
    NeutronPortAwaited,
    PodNetwork,
    PodProjectDriver,
    PodSecurityGroupsDriver,
)
from kuryr_k8s.drivers.base.port_creation import AddressInUse
from kuryr_k8s.drivers.multi_vif.annotations import annotation_of, has_any, shown
from kuryr_k8s.drivers.multi_vif.neutron_port_index import NeutronPortIndex
from kuryr_k8s.drivers.multi_vif.neutron_port_wish import (
    NEUTRON_PORT,
    NEUTRON_PORTS,
    SOON,
    Wish,
    new_port,
    read_choice,
    read_names,
    refuse,
    refuse_lost,
)
from kuryr_k8s.drivers.named.asked import Asked
from kuryr_k8s.drivers.named.networks import NamedNetworks
from kuryr_k8s.k8s.resources import IPAMCLAIMS, KURYRPORTS, NEUTRONPORTS, PODS, Key
from kuryr_k8s.model.annotation_values import flag
from kuryr_k8s.model.neutronport import BOUND, CLAIM, FAILED, PENDING, BoundTo, NeutronPort
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
STICKY = "openstack.org/sticky"
SRIOV = "sriov"  # the driver by which a Pod gets VFs
# of a request whose NeutronPort has a network
ANY_NETWORK = PodNetwork(
    network=Network(id="", name="", mtu=0, project_id="", shared=False), subnets=()
)
OFF = "[kubernetes] neutron_ports is off in kuryr.conf"
INVALID = 422  # the HTTP status of what the schema refuses
TAKEN_FOR = 60.0  # seconds for which an address counts as taken that was so
CHANGED = 0.2  # seconds in which the cache learns of changes that others have made
AWAITED = 30.0  # seconds after which a Pod looks for its NeutronPort again without being woken


class NeutronPorts:
    """Chooses NeutronPorts for Pods, and makes them, as ``[kubernetes] neutron_ports`` says."""

    def __init__(self, context: DriverContext) -> None:
        self._kube = context.kube
        self._neutron = context.neutron
        self._pods = context.informers.of(PODS)
        self._pods.keep(NEUTRON_PORT, NEUTRON_PORTS, STICKY)
        self._has_devices = SRIOV in context.conf.kubernetes.multi_vif_drivers
        self._networks = NamedNetworks(context)
        self._projects = context.drivers[PodProjectDriver]
        self._groups = context.drivers[PodSecurityGroupsDriver]
        mode = context.conf.kubernetes.neutron_ports
        self._is_off, self._creates = mode == "off", mode == "create"
        if not self._is_off:
            self._ports = context.informers.of(NEUTRONPORTS)
            self._index = NeutronPortIndex(self._ports)
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._clock = context.clock
        self._in_use: dict[str, float] = {}  # addresses that others than NeutronPorts have, until
        self._taking: set[str] = set()  # uids of those that are just being written

    def is_named(self, pod: Pod) -> bool:
        """Return whether the Pod names a NeutronPort, or selects some."""
        return has_any(self._pods, pod, (NEUTRON_PORT,))

    def may_ask(self, pod: Pod) -> bool:
        """Return whether the Pod names or selects NeutronPorts, for any of its interfaces."""
        return has_any(self._pods, pod, (NEUTRON_PORT, NEUTRON_PORTS))

    async def further(self, pod: Pod) -> tuple[InterfaceRequest, ...]:
        """Return the requests for the NeutronPorts that the Pod names for further interfaces.

        :raises errors.Refused: see :meth:`instead_of`.
        """
        names = self._further_names(pod)
        if names and self._is_off:
            raise errors.Refused(f"annotation {NEUTRON_PORTS}: {OFF}")
        requests = {name: await self._further(pod, name, names) for name in sorted(names)}
        return tuple(requests[name] for name in names)

    async def _further(self, pod: Pod, name: str, names: tuple[str, ...]) -> InterfaceRequest:
        found = self._index.named(Key(pod.namespace, name))
        is_on_device = found is not None and found.is_on_device
        if is_on_device and not self._has_devices:
            raise errors.Refused(
                f"annotation {NEUTRON_PORTS}: {name} is for a VF: that needs {SRIOV} in "
                "[kubernetes] multi_vif_drivers"
            )
        if is_on_device and not (pod.devices or pod.claims):
            raise errors.Refused(
                f"annotation {NEUTRON_PORTS}: {name} is for a VF, and the Pod requests no VFs"
            )
        request = await self._granted(
            Wish(
                pod=pod,
                name=name,
                labels=(),
                sticky=self._is_sticky(pod),
                is_further=True,
                others=names,
                asked=Asked(),
                request=InterfaceRequest(pod_network=ANY_NETWORK),
            )
        )
        if not is_on_device:
            return request
        return replace(request, physnet=request.pod_network.network.physnet)

    def _further_names(self, pod: Pod) -> tuple[str, ...]:
        return read_names(annotation_of(self._pods, pod, NEUTRON_PORTS) or "")

    async def instead_of(
        self, request: InterfaceRequest, pod: Pod, asked: Asked
    ) -> InterfaceRequest:
        """Return the request for the port of a NeutronPort, which is bound to the Pod.

        :param request: for a port of the Pod's own, which is returned where NeutronPorts are off.
        :param asked: what the Pod's annotations ask for.
        :raises NoNeutronPort: none is free that the Pod could have.
        :raises NeutronPortAwaited: the one that the Pod is to have has no port yet.
        """
        if self._is_off:
            if self.is_named(pod):
                raise errors.Refused(f"annotation {NEUTRON_PORT}: {OFF}")
            return request
        name, labels = read_choice(annotation_of(self._pods, pod, NEUTRON_PORT) or "")
        names = self._further_names(pod)
        wish = Wish(
            pod=pod,
            name=name,
            labels=labels,
            sticky=self._is_sticky(pod),
            others=names,
            asked=asked,
            request=request,
            member_groups=await self._member_groups(pod, asked),
        )
        # all Pods bind in the order of names: so no two wait for what the other one has
        first = self._likely(wish) if names else ""
        for each in sorted(names):
            if each < first:
                await self._further(pod, each, names)
        return await self._granted(wish)

    def _likely(self, wish: Wish) -> str:
        """Return the name of the NeutronPort that the Pod will have; empty: there is none yet."""
        bound = self._bound(wish, self._kuryrport_uid(wish.pod))
        found = [bound] if bound is not None else self._candidates(wish)
        best = min(found, key=wish.rank, default=None)
        return wish.name or ("" if best is None else best.name)

    async def of_claim(
        self, request: InterfaceRequest, pod: Pod, asked: Asked, claim: str
    ) -> InterfaceRequest:
        """Return the request for the port of an IPAMClaim, which is bound to the Pod.

        It is made when the first Pod refers to the claim, and goes with the claim.

        :param request: for a port of the Pod's own, and ``asked`` what it stands for.
        :param claim: its name; it is in the Pod's namespace.
        :raises errors.Refused: there is no such claim, or see :meth:`instead_of`.
        """
        if self._is_off:
            raise errors.Refused(f"ipam-claim-reference: {OFF}")
        found = await self._kube.find(IPAMCLAIMS, Key(pod.namespace, claim))
        if found is None:
            raise errors.Refused(f"ipam-claim-reference: there is no {CLAIM} {claim}")
        if "deletionTimestamp" in found["metadata"]:
            raise errors.Refused(f"ipam-claim-reference: {CLAIM} {claim} is being deleted")
        if ips := _addresses_of(found):  # which a port of the claim has had
            again = await self._had_again(pod, request.pod_network, ips)
            request = replace(request, addresses=again, further_addresses=())
        return await self._granted(
            Wish(
                pod=pod,
                name=claim,
                labels=(),
                sticky=False,
                claim_uid=found["metadata"]["uid"],
                asked=asked,
                request=request,
                member_groups=await self._member_groups(pod, asked),
            )
        )

    async def _had_again(
        self, pod: Pod, network: PodNetwork, ips: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return those of the addresses of a claim that a new port of it can be asked to have.

        Automatic ones follow from the MAC, and those in networks of other projects are Neutron's
        choice: there a port has new ones, which the claim tells then.
        """
        if network.network.project_id != await self._projects.project(pod):
            return ()
        automatic = [subnet.cidr for subnet in network.all_subnets if subnet.is_automatic]
        return tuple(each for each in ips if not _is_in_any(each, automatic))

    async def _member_groups(self, pod: Pod, asked: Asked) -> frozenset[str]:
        """Return the groups that do not count where a Pod asks for others."""
        if asked.groups is None:
            return frozenset()
        project = await self._projects.project(pod)
        return frozenset(await self._groups.member_groups(project))

    async def _granted(self, wish: Wish) -> InterfaceRequest:
        """Bind a NeutronPort to the Pod; return the request for its port."""
        kuryrport_uid = self._kuryrport_uid(wish.pod)
        port = self._bound(wish, kuryrport_uid) or await self._bind(wish, kuryrport_uid)
        if port is None:
            await self._provide(wish)
        if not port.port_id:
            raise refuse_lost(wish, port)
        try:
            specific_ports = self._neutron.specific_ports
            live = None  # what is remembered lacks the profile of a port for a device
            if not port.is_on_device:
                live = specific_ports.remembered(port.port_id, port.uid)
            live = live or await self._neutron.get_port(port.port_id)
            is_free = specific_ports.is_free(live, wish.pod.identity, neutron_port_uid=port.uid)
        except (errors.NotFound, PortInUse) as error:  # its handler sees to it
            lost: Json = {"portId": None} if isinstance(error, errors.NotFound) else {}
            await self._write(port, {"boundTo": None, "phase": PENDING, **lost})
            words = f"the port of NeutronPort {port.name} is not there: {error}"
            raise NeutronPortAwaited(words, SOON, wish) from error
        network = await self._networks.read(port.subnet_ids)
        network_name = wish.request.network_name
        if not wish.claim_uid:  # perhaps in another network than that of Pods
            network_name = network.network.name or network.network.id
        return replace(
            wish.request,
            pod_network=network,
            port_id=port.port_id,
            vnic_type=port.spec.vnic_type,
            as_found=fields_of(live) if is_free else None,
            security_groups=None,
            addresses=(),
            further_addresses=(),
            mac=None,
            port_security=None,
            address_pairs=(),
            qos_policy_id=None,
            network_name=network_name,
        )

    def _is_sticky(self, pod: Pod) -> bool:
        text = annotation_of(self._pods, pod, STICKY)
        try:
            return text is not None and flag(text.strip())
        except ValueError as error:
            raise errors.Refused(f"annotation {STICKY} {error}: {shown(text or '')}") from error

    def _kuryrport_uid(self, pod: Pod) -> str:
        """Return the uid of the KuryrPort that is to record what the Pod has.

        :raises errors.Wait: the Pod's is not there any more.
        """
        recorded = self._kuryrports.get(Key(pod.namespace, pod.name))
        if recorded is None or recorded.pod_uid != pod.identity:
            raise errors.Wait("the Pod's KuryrPort is another one by now", delay=1.0)
        return recorded.uid

    def _bound(self, wish: Wish, kuryrport_uid: str) -> NeutronPort | None:
        """Return the NeutronPort that is the Pod's already, if it still suits the Pod."""
        for port in self._index.bound_to(wish.pod.identity):
            bound_to = port.bound_to
            is_own = bound_to is not None and bound_to.kuryrport_uid == kuryrport_uid
            if is_own and wish.suits(port):
                return port
        return None

    async def _bind(self, wish: Wish, kuryrport_uid: str) -> NeutronPort | None:
        """Bind the best NeutronPort that the Pod could have; return it, or None.

        :raises NeutronPortAwaited: the one that is reserved for the Pod is not free yet, or all
            that there are were changed just now.
        """
        pod, changed = wish.pod, False
        bound_to = BoundTo(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.identity,
            node=pod.node or "",
            kuryrport_uid=kuryrport_uid,
        )
        status: Json = {"boundTo": bound_to.to_json(), "phase": BOUND}
        if wish.sticky:
            status["reservedFor"] = pod.name
        left = self._candidates(wish)
        while left := [port for port in left if port.uid not in self._taking]:
            port = min(left, key=wish.rank)
            self._taking.add(port.uid)
            try:
                return await self._write(port, status)
            except (errors.KubeConflict, errors.KubeNotFound):
                changed = True  # by somebody who was faster, or who did not take it
                left.remove(port)
            finally:
                self._taking.discard(port.uid)
        if changed:
            raise NeutronPortAwaited("NeutronPorts have changed", CHANGED, wish)
        return None

    def _candidates(self, wish: Wish) -> list[NeutronPort]:
        """List what the Pod could have.

        :raises NeutronPortAwaited: the one that is reserved for the Pod is not free yet.
        """
        ports = self._index.in_namespace(wish.pod.namespace)
        if wish.name:
            named = self._index.named(Key(wish.pod.namespace, wish.name))
            ports = [] if named is None else [named]
        reserved = [
            port for port in ports if port.reserved_for == wish.pod.name and wish.suits(port)
        ]
        found = list(filter(wish.may_have, reserved or ports))
        if reserved and not found:
            raise refuse(wish, reserved[0])
        return found

    async def _write(self, port: NeutronPort, status: Json) -> NeutronPort:
        """Write these fields of the status, if the NeutronPort is as it was looked at.

        :raises errors.KubeConflict: it has changed.
        """
        key = Key(port.namespace, port.name)
        answer = await self._kube.patch_status_of(NEUTRONPORTS, key, port, status)
        self._ports.learn(answer)
        return NeutronPort.read(answer)

    async def _provide(self, wish: Wish) -> NoReturn:
        """Make a NeutronPort for the Pod, if that is wanted.

        :raises NoNeutronPort: it is not, or one of its name is of no use.
        :raises NeutronPortAwaited: it has no port yet.
        """
        name, pod = wish.awaited_name, wish.pod
        found = self._index.named(Key(pod.namespace, name)) if name else None
        creates = bool(name) and (self._creates or bool(wish.claim_uid)) and not wish.is_further
        if found is not None and not creates and not wish.name:
            found = None  # it merely has the Pod's name
        if found is not None and self._may_be_replaced(wish, found):
            await self._replace(found)
            raise NeutronPortAwaited(f"NeutronPort {name} is made again", SOON, wish)
        if found is not None or not creates:
            raise refuse(wish, found)
        try:
            answer = await self._kube.create(NEUTRONPORTS, new_port(wish, self._taken(wish)))
        except errors.KubeConflict as error:
            words = f"there is a NeutronPort {name} already"
            raise NeutronPortAwaited(words, SOON, wish) from error
        except errors.KubeError as error:
            if error.status == INVALID:
                raise errors.Refused(f"NeutronPort {name} cannot be made: {error}") from error
            raise
        self._ports.learn(answer)
        raise NeutronPortAwaited(f"NeutronPort {name} is being made", AWAITED, wish)

    def _may_be_replaced(self, wish: Wish, found: NeutronPort) -> bool:
        """Return whether another address may do where one is in use that was chosen for a Pod."""
        is_in_use = found.ready is not None and found.ready.reason == AddressInUse.reason
        is_made_for_it = found.pod_uid == wish.pod.identity
        has_choice = len(wish.request.choices_of_addresses) > 1
        return is_made_for_it and found.phase == FAILED and is_in_use and has_choice

    async def _replace(self, found: NeutronPort) -> None:
        """Delete a NeutronPort that was made for a Pod, and can have no port."""
        now = self._clock.now()
        self._in_use = {each: until for each, until in self._in_use.items() if now < until}
        self._in_use |= dict.fromkeys(found.spec.fixed_ips, now + TAKEN_FOR)
        key = Key(found.namespace, found.name)
        self._ports.learn(await self._kube.delete(NEUTRONPORTS, key, uid=found.uid))

    def _taken(self, wish: Wish) -> set[str]:
        """Return the addresses that others in the namespace have, if the Pod has a choice."""
        if len(wish.request.choices_of_addresses) == 1:
            return set()
        now = self._clock.now()
        ports = self._index.in_namespace(wish.pod.namespace)
        in_use = {each for each, until in self._in_use.items() if now < until}
        return in_use.union(*((*port.ips, *port.spec.fixed_ips) for port in ports))


def _is_in_any(address: str, cidrs: Iterable[str]) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(cidr) for cidr in cidrs)


def _addresses_of(claim: Json) -> tuple[str, ...]:
    """Return the addresses that the status of an IPAMClaim tells.

    :raises errors.Refused: they cannot be read.
    """
    try:
        ips = (claim.get("status") or {}).get("ips") or ()
        return tuple(str(ipaddress.ip_interface(each).ip) for each in ips)
    except ValueError as error:
        name = claim["metadata"]["name"]
        raise errors.Refused(f"{CLAIM} {name} has ips that are no addresses") from error
