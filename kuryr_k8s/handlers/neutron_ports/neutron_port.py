"""The handler of NeutronPorts: each has its port in Neutron, and is free again after its Pod.

no port yet     → project, network, groups → a port → status
spec changed    → the port follows, or the condition says why it does not
Pod gone        → the port is taken back → Available; what was made for the Pod goes
being deleted   → wait for the Pod → delete the port, or leave it → our finalizer goes
"""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    PodProjectDriver,
    PodSecurityGroupsDriver,
    PodSubnetsDriver,
)
from kuryr_k8s.drivers.base.port_settings import PortSettings
from kuryr_k8s.drivers.named.objects import NamedObjects, told
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.limit import Priority, on_behalf_of, prioritized
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.conditions import new_condition, refused_condition
from kuryr_k8s.handlers.neutron_ports import plan
from kuryr_k8s.handlers.neutron_ports.claims import Claims
from kuryr_k8s.handlers.neutron_ports.floating_ips import (
    FloatingIPsOfNeutronPorts,
    FloatingIPSweepOfNeutronPorts,
)
from kuryr_k8s.handlers.neutron_ports.ports import PortsOfNeutronPorts
from kuryr_k8s.handlers.neutron_ports.sweep import NeutronPortSweep
from kuryr_k8s.k8s.events import REPORTED_AT_ONCE, Reference
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import KURYRPORTS, NEUTRONPORTS, NODES, Key
from kuryr_k8s.model.codec import DecodeError
from kuryr_k8s.model.condition import READY, Condition
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.neutronport import (
    AVAILABLE,
    BOUND,
    FAILED,
    FINALIZER,
    FLOATING_IP,
    PENDING,
    NeutronPort,
)

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class PortLost(errors.Refused):
    """The port of a NeutronPort was deleted in Neutron while a Pod had it."""

    reason = "KuryrPortLost"


class NeutronPortHandler(Handler):
    """Gives each NeutronPort its port, and takes it back from Pods that are gone."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._neutron_ports = context.informers.of(NEUTRONPORTS)
        self._kuryrports = context.informers.of(KURYRPORTS)
        self._nodes = context.informers.of(NODES)
        self._projects = context.drivers[PodProjectDriver]
        self._groups = context.drivers[PodSecurityGroupsDriver]
        self._subnets = context.drivers[PodSubnetsDriver]
        self._objects = NamedObjects(context, self._groups, plan.WORDS)
        self._ports = PortsOfNeutronPorts(context)
        self._claims = Claims(context)
        self._floating_ips = FloatingIPsOfNeutronPorts(context)
        self._sweep = NeutronPortSweep(context, self._ports, look_at=self._look_at)
        # uids of those for which nobody can have made a port: they got our finalizer just now
        self._untried: dict[Key, str] = {}
        self._led_to: dict[str, object] = {}  # ports that floating IPs lead to, by uids
        self._doubtful: set[Key] = set()  # whose ports may not be as they were recorded
        # keys by the uids of the Pods that have them, or for which they were made
        self._of_pods: defaultdict[str, set[Key]] = defaultdict(set)

    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(self._neutron_ports, self._of_neutron_port),
            Watch(self._kuryrports, self._of_kuryrport),
        )

    def _of_neutron_port(
        self, key: Key, old: NeutronPort | None, new: NeutronPort | None
    ) -> Iterable[Key]:
        for pod_uid in _pods_of(old) - _pods_of(new):
            self._of_pods[pod_uid].discard(key)
            if not self._of_pods[pod_uid]:
                del self._of_pods[pod_uid]
        for pod_uid in _pods_of(new):
            self._of_pods[pod_uid].add(key)
        return () if _what_matters(old) == _what_matters(new) else (key,)

    def _of_kuryrport(
        self, _key: Key, old: KuryrPort | None, new: KuryrPort | None
    ) -> Iterable[Key]:
        """Return the NeutronPorts of a Pod whose KuryrPort goes, or has got its interfaces."""
        if _what_matters_of(old) == _what_matters_of(new):
            return ()
        uids = {each.pod_uid for each in (old, new) if each is not None}
        return [key for uid in uids for key in self._of_pods.get(uid, ())]

    def is_urgent(self, key: Key) -> bool:
        """Return whether a Pod waits for the port, or for another one of its name."""
        port = self._neutron_ports.get(key)
        return port is not None and self._is_awaited(port)

    def _is_awaited(self, port: NeutronPort) -> bool:
        if port.claim_uid and not port.port_id:
            return True
        names = {port.reserved_for, port.pod_name, port.bound_to.name if port.bound_to else ""}
        recorded = [self._kuryrports.get(Key(port.namespace, name)) for name in names - {""}]
        return any(each is not None and not each.has_vifs for each in recorded)

    def loops(self) -> Sequence[Controller[Any]]:
        floating_ips = FloatingIPSweepOfNeutronPorts(self._context, self.queue.revisit)
        return (self._sweep.loop, floating_ips.loop)

    def collectors(self) -> Sequence[Collector]:
        return (_Count(self._neutron_ports),)

    def _look_at(self, key: Key) -> None:
        """Look at a port that is not as it was recorded."""
        self._doubtful.add(key)
        self.queue.revisit(key)

    async def reconcile(self, key: Key) -> float | None:
        port = self._neutron_ports.get(key)
        if port is None:
            self._untried.pop(key, None)
            self._doubtful.discard(key)
            return None
        is_released = port.bound_to is not None and await self._is_released(port)
        if is_released:
            await self._give_back(key, port)
        if port.deleting:
            if port.bound_to is None or is_released:
                await self._release(key, port)
            else:
                await self._hold(key, port)
        elif (is_released or port.bound_to is None) and await self._goes_with_its_pod(port):
            await self._delete(key, port)
        elif is_released:
            if not self._ports.is_given_back(port):
                self._doubtful.add(key)  # it may have been lost meanwhile, or changed
            phase = AVAILABLE if port.port_id else PENDING
            await self._write(key, port, {"boundTo": None, "phase": phase})
        else:
            await self._keep_and_tell(key, port)
        return None

    async def _keep_and_tell(self, key: Key, port: NeutronPort) -> None:
        """Keep the port as it is to be, and let its IPAMClaim say what becomes of it."""
        try:
            await self._keep(key, port)
        except REPORTED_AT_ONCE:
            with contextlib.suppress(errors.KubeError):  # what is wrong with the port matters more
                await self._claims.tell(self._neutron_ports.get(key) or port)
            raise
        await self._claims.tell(self._neutron_ports.get(key) or port)

    # -- keeping

    async def _keep(self, key: Key, port: NeutronPort) -> None:
        if FINALIZER not in port.finalizers:
            port = await self._add_finalizer(key, port)
        project = await self._projects.project_of_namespace(port.namespace)
        priority = Priority.POD if self._is_awaited(port) else Priority.REFILL
        with prioritized(priority), on_behalf_of(project):
            if port.spec.floating_ip is None and port.floating_ip is not None:
                port = await self._drop_floating_ip(key, port)
            try:
                status = await self._ensure(key, port, project)
            except REPORTED_AT_ONCE as error:
                await self._record_refusal(key, port, READY, error)
                raise
            port = await self._write(key, port, status)
            self._doubtful.discard(key)
            if port.spec.floating_ip is not None:
                await self._keep_floating_ip(key, port, project, port.spec.floating_ip)

    async def _drop_floating_ip(self, key: Key, port: NeutronPort) -> NeutronPort:
        """Release the floating IP of a NeutronPort that asks for none any more."""
        await self._floating_ips.release(port)
        conditions = port.conditions_with(FLOATING_IP, None)
        return await self._write(key, port, {"floatingIP": None, "conditions": conditions})

    async def _keep_floating_ip(
        self, key: Key, port: NeutronPort, project: str, asked: str
    ) -> None:
        """Let the port have the floating IP that is asked for."""
        if port.floating_ip is None:
            port = await self._write(key, port, {"floatingIP": ""})
        shown = (port.port_id, port.ips)
        if self._led_to.get(port.uid) != shown:  # the status alone does not tell whose a port is
            live = await self._ports.find(port, project, port.network_id, claimed=True)
            if live is None or plan.has_changed(live, port):
                self._look_at(key)
                raise errors.Wait(f"the port of NeutronPort {key} is not as recorded", delay=1.0)
            self._led_to[port.uid] = shown
        try:
            address = await self._floating_ips.ensure(port, project, asked)
        except REPORTED_AT_ONCE as error:
            await self._record_refusal(key, port, FLOATING_IP, error)
            raise
        ready = new_condition(port.generation, "FloatingIPReady")
        if port.floating_ip != address or ready.says_more_than(port.condition(FLOATING_IP)):
            conditions = port.conditions_with(FLOATING_IP, ready)
            await self._write(key, port, {"floatingIP": address, "conditions": conditions})

    async def _ensure(self, key: Key, port: NeutronPort, project: str) -> Json:
        """Make the port what it is to be; return the status, empty if that need not be looked at.

        :raises errors.Refused: it cannot be.
        """
        groups: tuple[str, ...] | None = None
        if port.spec.port_id is None and port.spec.security_groups is None:
            groups = await self._groups.default_groups(project)
        follows = await self._has_groups(port, project, groups)
        is_known = bool(port.port_id) and port.observed == port.generation
        if is_known and follows and key not in self._doubtful and _is_well(port):
            return {}
        if port.spec.port_id is not None:
            live = await self._claimed(port, project, port.spec.port_id)
            if not live["fixed_ips"]:
                raise errors.Refused("spec.portId: a port without an address")
        else:
            live = await self._made(key, port, project, groups)
        if is_known and _is_well(port) and not plan.has_changed(live, port):
            return {}
        subnet_ids = dict.fromkeys(ip["subnet_id"] for ip in live["fixed_ips"])
        network = await self._objects.read(tuple(subnet_ids))
        return plan.status_of(live, network) | {
            "phase": _phase(port),
            "observedGeneration": port.generation,
            "conditions": port.conditions_with(READY, new_condition(port.generation, "PortReady")),
        }

    async def _has_groups(
        self, port: NeutronPort, project: str, groups: tuple[str, ...] | None
    ) -> bool:
        """Return whether the port has the groups that the operator's options say.

        :param groups: None if it names some itself: the groups by which load balancers and nodes
            reach Pods come besides, and none that was such a group before.
        """
        if port.spec.port_id is not None or not port.port_security:
            return True
        if groups is not None:
            return groups == port.groups
        members = set(await self._groups.member_groups(project))
        most = len(members.union(port.spec.security_groups or ()))  # two names may be of one group
        return members.issubset(port.groups) and len(port.groups) <= most

    async def _made(
        self, key: Key, port: NeutronPort, project: str, groups: tuple[str, ...] | None
    ) -> Json:
        """Return the port that is made for a NeutronPort, up to date.

        :param groups: None if it names some itself.
        """
        settings = await self._settings(port, project, groups)
        is_untried = self._untried.get(key) == port.uid
        self._untried.pop(key, None)
        live = None
        if not is_untried:
            live = await self._ports.find(port, project, settings.pod_network.network.id)
        if live is not None:
            live = await self._ports.update(port, live, settings, self._used(port))
        else:
            if port.port_id:  # until there is another one, no Pod is to have this
                self._check_not_lost(port)
                self._ports.forget(port)
                port = await self._write(key, port, {"portId": None, "phase": PENDING})
            live = await self._ports.create(port, project, settings, self._host_id(port))
        newest = self._neutron_ports.get(key)
        if newest is not None and newest.uid == port.uid and newest.bound_to is None:
            self._ports.remember(live)
        return live

    async def _claimed(self, port: NeutronPort, project: str, port_id: str) -> Json:
        try:
            return await self._ports.claim(port, project, port_id)
        except errors.Refused as error:
            raise told("spec.portId", error) from error

    async def _settings(
        self, port: NeutronPort, project: str, groups: tuple[str, ...] | None
    ) -> PortSettings:
        """Return the settings of the port that is made for a NeutronPort.

        :param groups: None if it names some itself.
        """
        asked = plan.asked_by(port)
        namespace = port.namespace
        if asked.network is None and not asked.subnets:
            network = await self._subnets.default_network(project)
        else:
            network = await self._objects.network(namespace, project, asked)
        network = self._objects.check(namespace, project, network, asked)
        plan.check_addresses(network, asked.addresses)
        if groups is None:
            groups = await self._objects.groups(namespace, project, asked.groups) or ()
        return PortSettings(
            pod_network=network,
            security_groups=groups,
            addresses=asked.addresses,
            mac=asked.mac,
            port_security=asked.port_security,
            address_pairs=asked.pairs,
            qos_policy_id=await self._objects.qos_policy(namespace, project, asked.qos),
        )

    def _host_id(self, port: NeutronPort) -> str | None:
        """Return Neutron's name of the host that a new port is bound to; None: of none.

        A port for a device can be bound when the device is known.
        """
        if port.is_on_device:
            return None
        node = self._nodes.get(Key("", port.spec.host_hint or ""))
        return None if node is None else node.host_id

    def _check_not_lost(self, port: NeutronPort) -> None:
        """Check that no Pod runs with a port that is gone.

        :raises PortLost: one does; another port would not help it.
        """
        if self._runs_with(port):
            raise PortLost(
                f"port {port.port_id} was deleted in Neutron: Pod {port.bound_to} has no network "
                "any more; delete the Pod, and the port is made again"
            )

    def _runs_with(self, port: NeutronPort) -> bool:
        recorded = self._recorded(port)
        return recorded is not None and recorded.has_vifs and recorded.may_name(port.port_id)

    def _used(self, port: NeutronPort) -> tuple[str, ...]:
        """Return the addresses that the Pod has which has the port: a node has configured them."""
        recorded = self._recorded(port)
        if recorded is None:
            return ()
        try:
            vifs = recorded.vifs().values()
        except DecodeError:  # its own handler tells of it
            return ()
        return tuple(each for vif in vifs if vif.id == port.port_id for each in vif.ips)

    def _recorded(self, port: NeutronPort) -> KuryrPort | None:
        """Return the KuryrPort of the Pod that has the port; None: none has, or it is gone."""
        bound_to = port.bound_to
        if bound_to is None:
            return None
        recorded = self._kuryrports.get(Key(bound_to.namespace, bound_to.name))
        is_its = recorded is not None and recorded.uid == bound_to.kuryrport_uid
        return recorded if is_its else None

    # -- what becomes of it after its Pod

    async def _is_released(self, port: NeutronPort) -> bool:
        """Return whether the Pod that has the port is gone, or has come to have other ports.

        By a live read: what the cache lacks may exist.

        :raises errors.Wait: the cache lags.
        """
        bound_to = port.bound_to
        assert bound_to is not None
        key = Key(bound_to.namespace, bound_to.name)
        if _has(self._kuryrports.get(key), port):
            return False
        live = await self._context.kube.find(KURYRPORTS, key)
        if live is not None and _has(KuryrPort.read(live), port):
            raise errors.Wait(f"the cache lags behind: Pod {key} has the port", delay=1.0)
        return True

    async def _goes_with_its_pod(self, port: NeutronPort) -> bool:
        """Return whether the NeutronPort was made for a Pod that is gone; by a live read."""
        if not port.pod_uid:
            return False
        key = Key(port.namespace, port.pod_name)
        recorded = self._kuryrports.get(key)
        if recorded is not None and recorded.pod_uid == port.pod_uid:
            return False
        live = await self._context.kube.find(KURYRPORTS, key)
        return live is None or bool(live["spec"]["podUid"] != port.pod_uid)

    async def _give_back(self, key: Key, port: NeutronPort) -> None:
        """Take the port back from a Pod that is gone, unless that was done."""
        bound_to = port.bound_to
        assert bound_to is not None
        LOG.info("NeutronPort %s is free again: Pod %s is gone", key, bound_to)
        if not port.port_id or self._ports.is_given_back(port):
            return
        project = ""
        if port.spec.port_id is not None:
            # a NeutronPort does not wait for a grant: without a project, a port that is not
            # granted by its id is left to the sweep of ports that Pods have had
            with contextlib.suppress(errors.Refused):
                project = await self._projects.project_of_namespace(port.namespace)
        with prioritized(Priority.POD if self._is_awaited(port) else Priority.CLEANUP):
            await self._ports.give_back(port, project, bound_to.uid)

    async def _hold(self, key: Key, port: NeutronPort) -> None:
        """Let the condition say who holds a NeutronPort that is deleted; its end is an event."""
        message = f"deleted, and held until Pod {port.bound_to} is gone"
        await self._write_condition(
            key, port, READY, new_condition(port.generation, "Bound", message), {}
        )

    async def _release(self, key: Key, port: NeutronPort) -> None:
        if FINALIZER not in port.finalizers:
            return  # another's finalizer holds it
        with prioritized(Priority.CLEANUP):
            try:
                await self._floating_ips.release(port)
            except errors.Refused as error:  # the Namespace may wait for this
                LOG.warning("NeutronPort %s: its floating IP is left to the sweep: %s", key, error)
            try:
                await self._ports.release(port)
            except errors.Refused as error:
                await self._record_refusal(key, port, READY, error)
                raise
        self._claims.forget(port)
        self._led_to.pop(port.uid, None)
        answer = await self._context.kube.remove_finalizers(
            NEUTRONPORTS, key, FINALIZER, uid=port.uid, known=port.finalizers, reads=False
        )
        self._neutron_ports.learn(answer)

    async def _delete(self, key: Key, port: NeutronPort) -> None:
        """Delete the NeutronPort of a Pod that is gone."""
        try:
            answer = await self._context.kube.delete(NEUTRONPORTS, key, uid=port.uid)
        except errors.KubeConflict as error:
            raise errors.Wait(f"NeutronPort {key} is another one by now", delay=1.0) from error
        self._neutron_ports.learn(answer)

    # -- writing

    async def _add_finalizer(self, key: Key, port: NeutronPort) -> NeutronPort:
        """Add our finalizer, before there is anything that it guards.

        :returns: the NeutronPort as it is then.
        """
        patch = {
            "metadata": {
                "uid": port.uid,
                "resourceVersion": port.resource_version,
                "finalizers": [*port.finalizers, FINALIZER],
            }
        }
        answer = await self._context.kube.merge_patch(NEUTRONPORTS, key, patch)
        self._neutron_ports.learn(answer)
        self._untried[key] = port.uid
        return NeutronPort.read(answer)

    async def _record_refusal(
        self, key: Key, port: NeutronPort, kind: str, error: errors.KuryrError
    ) -> None:
        """Let a condition say why the port is not as the specification says.

        :raises errors.Wait: it has changed meanwhile: the error may be about what was.
        """
        newest = self._neutron_ports.get(key)
        if newest is None or _about(newest) != _about(port):
            raise errors.Wait(f"NeutronPort {key} has changed meanwhile", delay=1.0) from error
        is_failed = kind == READY and not newest.port_id
        condition = refused_condition(newest.generation, error)
        await self._write_condition(
            key, newest, kind, condition, {"phase": FAILED} if is_failed else {}
        )

    async def _write_condition(
        self, key: Key, port: NeutronPort, kind: str, condition: Condition, status: Json
    ) -> None:
        is_same = not condition.says_more_than(port.condition(kind))
        if is_same and port.phase == status.get("phase", port.phase):
            return
        conditions = port.conditions_with(kind, condition)
        await self._write(key, port, {**status, "conditions": conditions})

    async def _write(self, key: Key, port: NeutronPort, status: Json) -> NeutronPort:
        """Write these fields of the status, if the NeutronPort has not changed meanwhile.

        :returns: the NeutronPort as it is then.
        :raises errors.KubeConflict: it has.
        """
        if not status:
            return port
        kube = self._context.kube
        answer = await kube.patch_status_of(NEUTRONPORTS, key, port, status)
        self._neutron_ports.learn(answer)
        return NeutronPort.read(answer)

    def about(self, key: Key) -> Reference | None:
        port = self._neutron_ports.get(key)
        if port is None:
            return None
        return Reference.of(NEUTRONPORTS, port)


class _Count(Collector):
    """The metric of NeutronPorts by their phases."""

    def __init__(self, neutron_ports: Informer[NeutronPort]) -> None:
        self._neutron_ports = neutron_ports

    def collect(self) -> Iterable[GaugeMetricFamily]:
        metric = GaugeMetricFamily(
            "kuryr_neutron_ports", "NeutronPorts by their phases", labels=["phase"]
        )
        counted = Counter(port.phase for port in self._neutron_ports.values())
        for phase in (PENDING, AVAILABLE, BOUND, FAILED):
            metric.add_metric([phase], counted[phase])
        yield metric


def _about(port: NeutronPort) -> object:
    """Return what a refusal is about."""
    return (port.uid, port.generation, port.bound_to, port.deleting)


def _phase(port: NeutronPort) -> str:
    """Return the phase of a NeutronPort that has its port."""
    return AVAILABLE if port.bound_to is None else BOUND


def _is_well(port: NeutronPort) -> bool:
    """Return whether the status says that all is as it is to be."""
    return port.ready is not None and port.ready.is_true and port.phase == _phase(port)


def _has(recorded: KuryrPort | None, port: NeutronPort) -> bool:
    """Return whether the Pod that a port is bound to has it, or may come to have it."""
    bound_to = port.bound_to
    if recorded is None or bound_to is None or recorded.uid != bound_to.kuryrport_uid:
        return False
    is_recorded = port.port_id in dict(recorded.specific_ports)
    return not recorded.has_vifs or is_recorded or recorded.may_name(port.port_id)


def _pods_of(port: NeutronPort | None) -> set[str]:
    """Return the uids of the Pods whose ends concern a NeutronPort."""
    if port is None:
        return set()
    bound_to = port.bound_to.uid if port.bound_to is not None else ""
    return {bound_to, port.pod_uid} - {""}


def _what_matters_of(recorded: KuryrPort | None) -> object:
    return recorded and (recorded.uid, recorded.has_vifs, recorded.specific_ports)


def _what_matters(port: NeutronPort | None) -> object:
    if port is None:
        return None
    return (
        port.uid,
        port.generation,
        port.deleting,
        port.finalizers,
        port.bound_to,
        port.port_id,
        port.phase,
        port.pod_uid,
        port.floating_ip,
    )
