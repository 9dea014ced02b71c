"""The handler of KuryrPorts: ports are made when one appears, released when the node is done.

no vifs yet      → project, subnets, security groups → ports → status.vifs
vifs, unchanged  → nothing
other groups     → the ports follow
being deleted    → wait until the node's finalizer is gone → release the floating IP, then the
                   ports → our finalizer goes
"""

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.specific_ports import PortInUse
from kuryr_k8s.drivers.base import (
    InterfaceRequest,
    NeutronPortAwaited,
    NeutronPortWish,
    NodeNotReady,
    NoNeutronPort,
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PortRequest,
)
from kuryr_k8s.drivers.base.granted import projects
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.limit import Priority, on_behalf_of, prioritized
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.pods.default_routes import routed
from kuryr_k8s.handlers.pods.device_records import DeviceRecords
from kuryr_k8s.handlers.pods.floating_ips import PodFloatingIPs, PodFloatingIPSweep
from kuryr_k8s.handlers.pods.interface_requests import InterfaceRequests
from kuryr_k8s.handlers.pods.interfaces import Interfaces
from kuryr_k8s.handlers.pods.network_status import NetworkStatus
from kuryr_k8s.handlers.pods.reachability import Reachability
from kuryr_k8s.handlers.pods.selection import PodSelection
from kuryr_k8s.handlers.pods.specific_port_records import SpecificPortRecords
from kuryr_k8s.handlers.pods.specific_port_sweep import SpecificPortSweep
from kuryr_k8s.handlers.pods.starved import StarvedPods
from kuryr_k8s.handlers.pods.sweep import PortSweep
from kuryr_k8s.handlers.pods.takeover import sign_anew, sign_late
from kuryr_k8s.handlers.pods.vif import (
    has_twin,
    is_needed,
    reference,
    refuse_twin,
    wants_network,
)
from kuryr_k8s.k8s.api import merge_patch_to
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import KURYRPORTS, NEUTRONPORTS, NODES, PODS, Key
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME, OLD_DEFINITION, KuryrPort, write_vifs
from kuryr_k8s.model.neutronport import NeutronPort
from kuryr_k8s.model.pod import Node, Pod
from kuryr_k8s.model.service import canonical
from kuryr_k8s.model.vif import COVERED, VIFBase, VIFVlanNested

LOG = logging.getLogger(__name__)


RELEASED = "released"
ANOTHERS = 15.0  # seconds until another look at a Pod of another plugin's
WOKEN = 2  # Pods that try again when another one has got its ports: each wakes others in turn


class NotCalled(errors.Refused):
    """Another network plugin has given a Pod its default interface."""

    reason = "KuryrNotCalled"


class KuryrPortHandler(Handler):
    """Gives each KuryrPort its ports, and releases them."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._projects = context.drivers[PodProjectDriver]
        self._groups = context.drivers[PodSecurityGroupsDriver]
        self._selection = PodSelection(context.drivers, context.conf)
        self._requests = InterfaceRequests(context.drivers, context.conf, self._selection)
        self._interfaces = Interfaces(context.drivers)
        self._specific_ports = SpecificPortRecords(context)
        self._devices = DeviceRecords(context)
        self._floating_ips = PodFloatingIPs(context, self._selection, self.wake)
        self._network_status = NetworkStatus(context)
        self._reachability = Reachability(context)
        self._vm_runtime_classes = frozenset(context.conf.kubernetes.vm_runtime_classes)
        self._known_projects = projects(context.conf)
        self._starved = StarvedPods()
        self._refused_ports: set[Key] = set()  # Pods that name ports which others have
        # Pods that wait for NeutronPorts, and which they could have
        self._portless: dict[Key, NeutronPortWish] = {}
        self._tried: dict[Key, str] = {}  # uids of Pods for which ports were asked for
        # uids of Pods that may have some of their ports, not all; empty once those are released
        self._partial: dict[Key, str] = {}
        # uids of Pods whose interfaces may have been recorded: the API server did not say
        self._unanswered: dict[Key, str] = {}
        # done in Neutron, not yet recorded in the KuryrPort
        self._unrecorded: dict[Key, tuple[str, object]] = {}
        self._granted: dict[Key, KuryrPort] = {}  # the last state with interfaces as we wrote them
        # uid and ports that were released, while others of the KuryrPort remain
        self._released: dict[Key, tuple[str, set[str]]] = {}

    def watches(self) -> Sequence[Watch[Any]]:
        informers = self._context.informers
        watches: list[Watch[Any]] = [
            Watch(informers.of(KURYRPORTS), self._of_kuryrport),
            Watch(informers.of(PODS), self._of_pod),
            Watch(informers.of(NODES), self._of_node),
        ]
        if self._context.conf.kubernetes.neutron_ports != "off":
            watches.append(Watch(informers.of(NEUTRONPORTS), self._of_neutron_port))
        return watches

    def _of_kuryrport(
        self, key: Key, old: KuryrPort | None, new: KuryrPort | None
    ) -> Iterable[Key]:
        """Return the key if it matters; plugging and unplugging do not concern this handler."""
        granted = self._granted.get(key)
        if granted is not None and new is not None and _same_grant(granted, new):
            self._granted[key] = new  # the cache keeps it anyway; the node has changed ``active``
        return () if _what_matters(old) == _what_matters(new) else (key,)

    def _of_pod(self, key: Key, _old: Pod | None, _new: Pod | None) -> Iterable[Key]:
        return (key,) if self._context.informers.of(KURYRPORTS).get(key) else ()

    def _of_node(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Return a node's KuryrPorts if the Node came, went, or changed in a way that matters."""
        if old and new and _what_matters_of(old) == _what_matters_of(new):
            return ()
        ports = self._context.informers.of(KURYRPORTS).values()
        return [Key(port.namespace, port.name) for port in ports if port.node == key.name]

    def _of_neutron_port(
        self, key: Key, old: NeutronPort | None, new: NeutronPort | None
    ) -> Iterable[Key]:
        """Return the Pod that has waited longest of those that could have the NeutronPort now.

        Of one that is gone, the Pods that wait for another one of its name.
        """
        if new is None:
            chosen = [
                waiting
                for waiting, wish in self._portless.items()
                if (waiting.namespace, wish.awaited_name) == key
            ]
        else:
            could = (
                waiting
                for waiting, wish in self._portless.items()
                if wish.may_have(new) and not (old is not None and wish.may_have(old))
            )
            chosen = list(itertools.islice(could, WOKEN))
        for waiting in chosen:
            del self._portless[waiting]
        return chosen

    def is_urgent(self, key: Key) -> bool:
        """Return whether a Pod waits for ports: not where they are released, or change groups."""
        recorded = self._context.informers.of(KURYRPORTS).get(key)
        if recorded is None:
            return False
        if recorded.deleting:
            return self._is_in_the_way(key, recorded)
        return not (recorded.has_vifs or recorded.has_none)

    def _is_in_the_way(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether another Pod of the same name waits until the KuryrPort is gone."""
        pod = self._context.informers.of(PODS).get(key)
        return (
            pod is not None
            and pod.identity != recorded.pod_uid
            and wants_network(pod)
            and not pod.deleting
        )

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the sweeps of ports, by which pools recover as well, and of floating IPs."""
        sweeps = [PortSweep(self._context).loop, SpecificPortSweep(self._context).loop]
        if self._selection.may_ask_for_floating_ips:
            sweeps.append(
                PodFloatingIPSweep(self._context, self._selection, self.queue.revisit).loop
            )
        return sweeps

    async def reconcile(self, key: Key) -> float | None:
        recorded = self._context.informers.of(KURYRPORTS).get(key)
        if recorded is None:
            if self._context.informers.of(PODS).get(key) is None:
                self._forget(key)
        elif recorded.deleting:
            await self._release(key, recorded)
        elif await self._is_as_granted(key, recorded):
            await self._ensure(key, recorded)
        return None

    def _as_granted(self, key: Key, recorded: KuryrPort) -> KuryrPort:
        """Return the KuryrPort with what we wrote of the interfaces, whatever others wrote since.

        Interfaces from before our start count as granted, if they can be read: whose their ports
        are is asked before each use.
        """
        granted = self._granted.get(key)
        if granted is not None and granted.uid == recorded.uid:
            if _same_grant(granted, recorded):
                return recorded
            with contextlib.suppress(DecodeError):
                granted.vifs()
                return granted
        self._granted.pop(key, None)
        if recorded.has_vifs:
            self._granted[key] = recorded
        return recorded

    async def _is_as_granted(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether nobody has changed the interfaces since we wrote them; else restore them.

        A node may write ``active``, and nothing else.
        """
        granted = self._as_granted(key, recorded)
        if granted is recorded:
            return True
        await self._context.strangers.forged(_reference(recorded))
        wanted = {
            "vifs": merge_patch_to(granted.vifs_json(), recorded.vifs_json()),
            "specificPorts": merge_patch_to(
                granted.specific_ports_json(), recorded.specific_ports_json()
            ),
        }
        status = {name: part for name, part in wanted.items() if part}
        informer, kube = self._context.informers.of(KURYRPORTS), self._context.kube
        informer.learn(await kube.patch_status_of(KURYRPORTS, key, recorded, status))
        return False

    # -- making

    async def _ensure(self, key: Key, recorded: KuryrPort) -> None:
        self._portless.pop(key, None)
        pod = self._context.informers.of(PODS).get(key)
        if pod is None or not is_needed(recorded, pod):
            return  # the vif handler deletes it
        project = await self._project_of(recorded, pod)
        with on_behalf_of(project):
            await self._ensure_in(key, recorded, pod, project)

    async def _ensure_in(self, key: Key, recorded: KuryrPort, pod: Pod, project: str) -> None:
        """Make the interfaces of a Pod whose ports belong to a project, or keep them as asked."""
        groups = await self._groups.security_groups(pod, project)
        if recorded.has_vifs:
            self._starved.discard(key)
            await self._follow_groups(key, recorded, groups)
            await self._network_status.write(key, pod, recorded)
            await self._give_back_unused(key, recorded)
            self._check_called(pod, recorded)
            await self._floating_ips.ensure(key, pod, recorded, project)
            return
        if pod.deleting:
            return  # it will not start any more
        if recorded.has_none and self._selection.may_be_none and pod.addresses:
            return  # it has all that it gets
        if recorded.static:
            refuse_twin(self._context.informers.of(KURYRPORTS), key, recorded.pod_uid)
        if recorded.may_be_given_vifs_by_another(self._context.incarnation):
            recorded = await sign_late(self._context, recorded)
        requests: Mapping[str, InterfaceRequest] = {}
        try:
            await self._specific_ports.settle(recorded)
            requests = await self._requests.of(pod, project)
            if not requests:
                self._starved.discard(key)
                if not recorded.has_none:
                    recorded = await self._give_up(key, recorded)
                    await self._patch_status(key, recorded, {"projectId": project, "vifs": {}})
                _wait_for_another_plugin(key)
            recorded = await self._devices.ask(key, recorded, requests)
            parent_port = functools.partial(self._parent_port, recorded)
            recorded = await self._specific_ports.record(
                key, recorded, requests.values(), parent_port
            )
            vifs = await self._make(key, recorded, requests, project, groups)
            if pod.runtime_class in self._vm_runtime_classes:
                vifs = {name: _covered(vif) for name, vif in vifs.items()}
        except NeutronPortAwaited as error:
            self._portless[key] = error.wish
            raise
        except (errors.Refused, errors.OverQuota) as error:
            if isinstance(error, NoNeutronPort):
                self._portless[key] = error.wish
            if isinstance(error, errors.OverQuota):
                self._starved.add(key, project)
            elif isinstance(error, PortInUse):
                self._refused_ports.add(key)
            if not isinstance(error, NodeNotReady):  # which is a matter of seconds
                await self._give_up(key, recorded)
            if isinstance(error, errors.OverQuota) and len(requests) > 1:
                for other in self._starved.pass_on(key, project):  # it may need less
                    self.wake(other)
            raise
        for other in self._starved.take(project, WOKEN):  # there may be room for them, too
            self.wake(other)
        own_groups = {name for name, request in requests.items() if request.has_own_groups}
        network_names = {name: request.network_name for name, request in requests.items()}
        delegated = [name for name, request in requests.items() if request.delegated]
        status = {
            "projectId": project,
            "securityGroupIds": list(groups),
            "vifs": write_vifs(vifs, own_groups, network_names, delegated),
        }
        try:
            await self._patch_status(key, recorded, status)
        except (errors.KubeNotFound, errors.KubeConflict):
            await self._release_unnamed(key, recorded)
            raise
        LOG.info("Pod %s on node %s: ports %s", key, recorded.node, ", ".join(_ids(vifs)))
        recorded = self._granted[key]
        if delegated and recorded.delegated().keys() != set(delegated):
            raise errors.Refused(OLD_DEFINITION)
        if any(network_names.values()):
            await self._network_status.write(key, pod, recorded)
            if (about := self.about(key)) is not None:
                await self._reachability.tell(about, recorded)
        await self._give_back_unused(key, recorded)

    def _check_called(self, pod: Pod, recorded: KuryrPort) -> None:
        """Check that no other plugin has given the Pod the default interface that it has of ours.

        :raises NotCalled: one has, as the Pod's addresses show.
        """
        if not (pod.addresses and self._selection.default_is_others):
            return
        vif = recorded.vifs().get(DEFAULT_IFNAME)
        if vif is None or DEFAULT_IFNAME in recorded.delegated():
            return
        if not {canonical(address) for address in vif.ips}.intersection(pod.addresses):
            raise NotCalled(
                f"the Pod has {', '.join(pod.addresses)}, which port {vif.id} does not have: "
                "another network plugin was called for it, and not kuryr-cni (see Several plugins "
                "in docs/interfaces.md)"
            )

    async def _project_of(self, recorded: KuryrPort, pod: Pod) -> str:
        """Return the project of the Pod's ports; the status is not believed in everything."""
        project = recorded.project_id
        if recorded.has_vifs and project is not None and project in self._known_projects:
            return project
        return await self._projects.project(pod)

    async def _parent_port(self, recorded: KuryrPort) -> str:
        return await self._interfaces.parent_port(self._node(recorded.node))

    async def _make(
        self,
        key: Key,
        recorded: KuryrPort,
        requests: Mapping[str, InterfaceRequest],
        project: str,
        groups: tuple[str, ...],
    ) -> dict[str, VIFBase]:
        """Make all interfaces of the Pod; those of an earlier try are found."""
        node = self._node(recorded.node)
        devices = self._devices.of(recorded)
        may_exist = self._may_exist(key, recorded)
        self._tried[key] = recorded.pod_uid
        ports = [
            PortRequest(
                pod_uid=recorded.pod_uid,
                pod_name=str(key),
                node=node,
                ifname=ifname,
                project_id=project,
                pod_network=request.pod_network,
                security_groups=(
                    groups if request.security_groups is None else request.security_groups
                ),
                may_exist=may_exist,
                wake=functools.partial(self.wake, key),
                port_id=request.port_id,
                as_found=request.as_found,
                vnic_type=request.vnic_type,
                addresses=request.addresses,
                further_addresses=request.further_addresses,
                mac=request.mac,
                port_security=request.port_security,
                address_pairs=request.address_pairs,
                qos_policy_id=request.qos_policy_id,
                own_groups=request.security_groups is not None,
                device=devices.get(ifname),
            )
            for ifname, request in requests.items()
        ]
        drivers = [request.vif_driver for request in requests.values()]
        if len(ports) > 1:
            self._partial[key] = recorded.pod_uid
        made = await self._interfaces.ensure_all(list(zip(ports, drivers, strict=True)))
        return routed(made, requests)

    async def _give_back_unused(self, key: Key, recorded: KuryrPort) -> None:
        """Give back what the Pod named before it got its interfaces, and has not."""
        if not recorded.specific_ports:
            return
        used = {vif.id for vif in recorded.vifs().values()}
        unused = [port_id for port_id, _ in recorded.specific_ports if port_id not in used]
        if unused:
            await self._specific_ports.give_back(recorded, but=used)
            self._granted[key] = await self._specific_ports.forget(key, recorded, unused)

    async def _give_up(self, key: Key, recorded: KuryrPort) -> KuryrPort:
        """Release what the Pod has of its interfaces: it does not get all, and others need them.

        An earlier controller may have left some, too. If it may have them by now, as the record of
        them was not answered, that is found out first.

        :returns: the KuryrPort as it is then.
        """
        ours = recorded.creator == self._context.incarnation
        partial = self._partial.get(key, "" if ours else recorded.pod_uid)
        if partial != recorded.pod_uid and not recorded.specific_ports:
            return recorded
        try:
            if self._unanswered.get(key) == recorded.pod_uid:
                recorded = await sign_anew(self._context, recorded)
                self._unanswered.pop(key)
            await self._release_unrecorded(key, recorded)
            await self._specific_ports.give_back(recorded)
            if recorded.specific_ports:
                ports = dict(recorded.specific_ports)
                recorded = await self._specific_ports.forget(key, recorded, ports)
        except errors.KuryrError as error:  # why the Pod does not get them matters more
            LOG.warning("Pod %s: interfaces are not released yet: %s", key, error)
        else:
            self._partial[key] = ""
        return recorded

    def _may_exist(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether anybody can have made ports for the Pod.

        Nobody can if this very process vouched for that when it created the KuryrPort, and has
        requested none since (the cache may have been set back). That saves Neutron a request for
        every new Pod.
        """
        ours = recorded.creator == self._context.incarnation
        return not ours or self._tried.get(key) == recorded.pod_uid

    def _forget(self, key: Key) -> None:
        self._starved.discard(key)
        self._refused_ports.discard(key)
        self._portless.pop(key, None)
        self._tried.pop(key, None)
        self._partial.pop(key, None)
        self._unanswered.pop(key, None)
        self._unrecorded.pop(key, None)
        self._released.pop(key, None)
        if (granted := self._granted.pop(key, None)) is not None:
            self._context.strangers.forget(granted.uid)

    def _node(self, name: str) -> Node:
        node = self._context.informers.of(NODES).get(Key("", name))
        if node is None:
            raise NodeNotReady(f"there is no node {name}")
        return node

    async def _follow_groups(self, key: Key, recorded: KuryrPort, groups: tuple[str, ...]) -> None:
        """Give the Pod's groups to the interfaces that had none of their own when they were made.

        What the Pod asks for by now does not matter: its interfaces are those that it has. The
        default one comes first, so that no trouble with another one keeps the groups from it.

        :raises errors.Wait: of one, it cannot be told yet whose it is.
        """
        uid, sent = self._unrecorded.get(key, ("", None))
        sent = sent if uid == recorded.uid else None
        if recorded.security_groups == groups and sent is None:
            return
        if sent != groups:
            with prioritized(Priority.CLEANUP):
                await self._send_groups(recorded, groups)
            self._unrecorded[key] = (recorded.uid, groups)
        await self._patch_status(key, recorded, {"securityGroupIds": list(groups)})
        self._unrecorded.pop(key, None)

    async def _send_groups(self, recorded: KuryrPort, groups: tuple[str, ...]) -> None:
        untold: list[str] = []
        for vif in recorded.following():
            is_held = await self._interfaces.holds(vif, recorded.pod_uid)
            if is_held:
                await self._interfaces.update_security_groups(vif, groups)
            elif is_held is None:
                untold.append(vif.id)
            else:
                await self._context.strangers.refused(_reference(recorded), vif.id)
        if untold:
            raise errors.Wait(
                f"it cannot be told yet whose these ports are: {', '.join(untold)}",
                delay=self._context.patience.untold_port,
            )

    async def _patch_status(self, key: Key, recorded: KuryrPort, status: dict[str, Any]) -> None:
        meta = {"uid": recorded.uid}
        if "vifs" in status:  # an earlier leader's word must not come after a later one's
            meta["resourceVersion"] = recorded.resource_version
            self._unanswered[key] = recorded.pod_uid
        patch = {"metadata": meta, "status": status}
        informer, kube = self._context.informers.of(KURYRPORTS), self._context.kube
        answer = await kube.merge_patch(KURYRPORTS, key, patch, subresource="status")
        if "vifs" in status:
            self._granted[key] = KuryrPort.read(answer)
            self._unanswered.pop(key)
        informer.learn(answer)

    async def _release_unnamed(self, key: Key, recorded: KuryrPort) -> None:
        """Release ports that nobody will name if the KuryrPort went while they were made."""
        live = await self._context.kube.find(KURYRPORTS, key)
        self._context.informers.of(KURYRPORTS).learn(live)  # changed by other hands: so it is now
        self._unanswered.pop(key, None)  # what was sent before was for another state of it
        if live is None or live["metadata"]["uid"] != recorded.uid:
            await self._release_unrecorded(key, recorded)
            await self._specific_ports.give_back(recorded)

    # -- releasing

    async def _release(self, key: Key, recorded: KuryrPort) -> None:
        """Release the ports, once it is certain that the node has unplugged them."""
        self._starved.discard(key)
        self._portless.pop(key, None)
        if KURYRPORT_FINALIZER not in recorded.finalizers:
            return  # all is released; another's finalizer holds it
        if recorded.floating_ip is not None:
            await self._release_floating_ip_early(key, recorded)
        if NODE_FINALIZER in recorded.finalizers and not (
            await self._was_never_plugged(key, recorded) or await self._node_is_gone(key, recorded)
        ):
            return  # the daemon's word comes as a change of the KuryrPort
        awaited = self._starved or self._is_in_the_way(key, recorded)
        with prioritized(Priority.POD if awaited else Priority.CLEANUP):
            await self._release_and_let_go(key, recorded)
        self._devices.forget(recorded.pod_uid)
        self._forget(key)
        self._wake_starved()

    async def _release_floating_ip_early(self, key: Key, recorded: KuryrPort) -> None:
        """Release the floating IP before the node has unplugged the port: it may be lost."""
        try:
            if await self._pod_is_gone(key, recorded):
                await self._floating_ips.release(recorded)
        except errors.KuryrError as error:  # it is tried again with the ports
            LOG.debug("Pod %s: its floating IP is not released yet: %s", key, error)

    async def _release_and_let_go(self, key: Key, recorded: KuryrPort) -> None:
        if self._unrecorded.get(key) != (recorded.uid, RELEASED):
            await self._floating_ips.release_or_detach(recorded)  # before others have the ports
            await self._release_ports(key, recorded)
            await self._specific_ports.give_back(self._as_granted(key, recorded))
            self._unrecorded[key] = (recorded.uid, RELEASED)
            if recorded.specific_ports:
                self._wake_refused()
        answer = await self._context.kube.remove_finalizers(
            KURYRPORTS,
            key,
            NODE_FINALIZER,
            KURYRPORT_FINALIZER,
            uid=recorded.uid,
            known=recorded.finalizers,
        )
        self._context.informers.of(KURYRPORTS).learn(answer)

    async def _release_ports(self, key: Key, recorded: KuryrPort) -> None:
        granted = self._as_granted(key, recorded)
        if not granted.has_vifs:
            await self._release_unrecorded(key, recorded)
            return
        vifs = granted.vifs()
        LOG.info("Pod %s is gone: ports %s are released", key, ", ".join(_ids(vifs)))
        uid, released = self._released.get(key, ("", set()))
        if uid != recorded.uid:
            released = set()
            self._released[key] = recorded.uid, released
        is_doubtful, specific = False, dict(granted.specific_ports)
        for vif in vifs.values():
            if vif.id in released or vif.id in specific:
                continue
            is_held = await self._interfaces.holds(vif, recorded.pod_uid)
            if is_held:
                await self._interfaces.release(vif, recorded.pod_uid)
                released.add(vif.id)
                continue
            is_doubtful = True
            if is_held is None:  # a survey finds the port's Pod among those that are left
                LOG.warning("Pod %s: it cannot be told whose port %s is; it is kept", key, vif.id)
            else:
                await self._context.strangers.refused(_reference(recorded), vif.id)
        if is_doubtful:  # perhaps the Pod has other ports, which its KuryrPort does not name
            await self._release_unrecorded(key, recorded)

    async def _release_unrecorded(self, key: Key, recorded: KuryrPort) -> None:
        """Release all ports of the Pod, unless they are those of another KuryrPort's Pod."""
        kuryrports = self._context.informers.of(KURYRPORTS)
        if not (recorded.static and has_twin(kuryrports, key, recorded.pod_uid)):
            await self._interfaces.release_unrecorded(recorded.pod_uid)

    async def _was_never_plugged(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether no interface was ever recorded; none will be after the deletion.

        So a Pod that never came to run on a node without a daemon can go.
        """
        if self._as_granted(key, recorded).has_vifs:
            return False
        live = await self._context.kube.find(KURYRPORTS, key)
        return live is None or (
            live["metadata"]["uid"] == recorded.uid and not KuryrPort.read(live).has_vifs
        )

    async def _node_is_gone(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether nobody is left to unplug the ports: both the Node and the Pod are gone.

        A Node that an operator tainted as out of service counts as gone. All by live reads, since
        an object that a cache lacks may exist.
        """
        cached = self._context.informers.of(NODES).get(Key("", recorded.node))
        if cached is not None and not cached.out_of_service:
            return False
        live_node = await self._context.kube.find(NODES, Key("", recorded.node))
        if live_node is not None and not Node.read(live_node).out_of_service:
            return False
        return await self._pod_is_gone(key, recorded)

    async def _pod_is_gone(self, key: Key, recorded: KuryrPort) -> bool:
        """Return whether the API server has no such Pod, or one that is over."""
        live = await self._context.kube.find(PODS, key)
        return live is None or not is_needed(recorded, Pod.read(live))

    def _wake_starved(self) -> None:
        """Wake the Pod that has waited longest in each project, since a port was released.

        Not only in the port's own project: projects that share a network share its addresses.
        """
        for key in self._starved.take_first():
            self.wake(key)

    def _wake_refused(self) -> None:
        """Wake all Pods that named ports which others had: one was given back."""
        waiting, self._refused_ports = self._refused_ports, set()
        for key in waiting:
            self.wake(key)

    def about(self, key: Key) -> Reference | None:
        """Return the Pod; the KuryrPort, where that is all that is left of it."""
        recorded = self._context.informers.of(KURYRPORTS).get(key)
        left = None if recorded is None else _reference(recorded)
        return reference(self._context.informers.of(PODS).get(key)) or left


def _wait_for_another_plugin(key: Key) -> NoReturn:
    """Look again until another plugin has given the Pod its address.

    Until then, what was read of the Pod may change, such as what its Namespace names.

    :raises errors.Wait: always.
    """
    raise errors.Wait(f"Pod {key} gets its network from another plugin", delay=ANOTHERS)


def _covered(vif: VIFBase) -> VIFBase:
    """Return the interface as the runtime of a virtual machine takes it."""
    return replace(vif, plugin=COVERED) if isinstance(vif, VIFVlanNested) else vif


def _what_matters(port: KuryrPort | None) -> object:
    if port is None:
        return None
    # before there are interfaces, specificPorts changes by our own record alone
    granted = _granted(port) if port.has_vifs else (port.uid, port.devices)
    return (port.deleting, port.finalizers, port.security_groups, port.floating_ip, granted)


def _same_grant(one: KuryrPort, other: KuryrPort) -> bool:
    return _granted(one) == _granted(other)


def _granted(port: KuryrPort) -> object:
    return (port.uid, port.vifs_granted, port.specific_ports)


def _reference(recorded: KuryrPort) -> Reference:
    return Reference.of(KURYRPORTS, recorded)


def _what_matters_of(node: Node) -> object:
    return (node.host_id, node.out_of_service, node.addresses, node.pod_vif)


def _ids(vifs: dict[str, VIFBase]) -> list[str]:
    return [vif.id for vif in vifs.values()]
