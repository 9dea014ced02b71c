"""The floating IPs of NeutronPorts.

That a NeutronPort may have one is noted in its status before one is made or taken: so it is
released with the NeutronPort. The driver of public addresses finds floating IPs by their marks.
"""

import ipaddress
from collections.abc import Callable, Iterable, Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import Owned, PublicIPRequest, ServicePublicIPDriver, granted
from kuryr_k8s.drivers.named.objects import told
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.floating_ip_sweep import FloatingIPSweep
from kuryr_k8s.k8s.resources import NEUTRONPORTS, Key
from kuryr_k8s.model.neutronport import NeutronPort
from kuryr_k8s.model.owner import Owner, Role

WORDS = "spec.floatingIP"
ANY = "true"  # in the specification


class FloatingIPsOfNeutronPorts:
    """Gives NeutronPorts the floating IPs that they ask for, and releases them."""

    def __init__(self, context: HandlerContext) -> None:
        self._conf = context.conf
        self._driver = context.drivers[ServicePublicIPDriver]

    async def ensure(self, port: NeutronPort, project_id: str, asked: str) -> str:
        """Let the port have the floating IP that is asked for.

        :param port: as its status says, which was compared with Neutron.
        :returns: its address.
        :raises errors.Refused: it cannot have one, or others have it.
        """
        try:
            request = _request(port, project_id, "" if asked == ANY else asked)
            if asked == ANY:
                granted.check_named(self._conf, "floating_ips", port.namespace, "*")
            address = await self._driver.ensure(request)
        except errors.Refused as error:
            raise told(WORDS, error) from error
        if address is None:
            raise errors.Refused(
                f"{WORDS}: there is no external network for floating IPs ([neutron_defaults] "
                "external_svc_net in kuryr.conf)"
            )
        return address

    async def release(self, port: NeutronPort) -> None:
        """Release what the port may have: what was made for it goes, what was there before stays.

        :raises errors.KuryrError: it cannot be done now.
        """
        owner = Owner(port.uid, Role.NEUTRON_PORT)
        if port.floating_ip is not None and await self._driver.has(owner):
            await self._driver.release(owner, keep=None)


class FloatingIPSweepOfNeutronPorts(FloatingIPSweep):
    """The sweep of floating IPs of NeutronPorts that are gone, or ask for none any more."""

    def __init__(self, context: HandlerContext, look_again: Callable[[Key], None]) -> None:
        super().__init__(context, Role.NEUTRON_PORT, look_again)
        self._neutron_ports = context.informers.of(NEUTRONPORTS)

    def holders(self) -> Iterable[Key]:
        return [
            Key(port.namespace, port.name)
            for port in self._neutron_ports.values()
            if port.floating_ip is not None
        ]

    async def live_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        return _unwanted(items, await self._kube.list_views(NEUTRONPORTS))

    def still_unwanted(self, items: Sequence[Owned]) -> list[Owned]:
        return _unwanted(items, self._neutron_ports.values())


def _unwanted(items: Sequence[Owned], ports: Iterable[NeutronPort]) -> list[Owned]:
    """Return those whose NeutronPorts neither have them, nor ask for them."""
    wanted = {
        port.uid
        for port in ports
        if port.floating_ip is not None or port.spec.floating_ip is not None
    }
    return [item for item in items if item.owner.uid not in wanted]


def _request(port: NeutronPort, project_id: str, existing: str) -> PublicIPRequest:
    """Return the request for a floating IP.

    :param existing: the address or the id of one that exists; empty: any.
    :raises errors.Refused: no floating IP can lead to the port.
    """
    addresses = sorted(each for each in port.ips if ipaddress.ip_address(each).version == 4)
    if not addresses:
        raise errors.Refused("floating IPs are of IPv4, and the port has no address of it")
    return PublicIPRequest(
        owner=Owner(port.uid, Role.NEUTRON_PORT),
        namespace=port.namespace,
        name=port.name,
        project_id=project_id,
        port_id=port.port_id,
        vip_address=addresses[0],
        existing=existing,
    )
