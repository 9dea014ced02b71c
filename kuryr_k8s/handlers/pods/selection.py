"""Which Pods get interfaces from us."""

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import Drivers, MultiVIFDriver
from kuryr_k8s.model.pod import Pod

NAMED_NETWORK, NEUTRON_PORT = "named_network", "neutron_port"


class PodSelection:
    """Tells which Pods get interfaces from us, and whether each gets its default one.

    :ivar drivers: the Multi-VIF drivers by which Pods ask, in their order.
    """

    def __init__(self, drivers: Drivers, conf: cfg.ConfigOpts) -> None:
        options = conf.kubernetes
        self._multus: str = options.multus
        self._annotated: bool = options.pod_selection == "annotated"
        self._has_neutron_ports: bool = options.neutron_ports != "off"
        self._handles_neutron_ports = NEUTRON_PORT in options.enabled_handlers
        self._names_networks = NAMED_NETWORK in options.multi_vif_drivers
        self.drivers = list(drivers.several(MultiVIFDriver))
        if options.specific_ports:  # also where multi_vif_drivers does not list them
            specific_ports = drivers.named(MultiVIFDriver, "specific_ports")
            if specific_ports not in self.drivers:
                self.drivers.append(specific_ports)

    def check(self) -> None:
        """Check the options.

        :raises errors.ConfigError: they contradict each other.
        """
        if self._has_neutron_ports:
            self._check_neutron_ports()
        if not self._annotated:
            return
        if self._multus == "default":
            raise errors.ConfigError(
                "[kubernetes] pod_selection is annotated: multus must be none or delegate, since "
                "kuryr-cni is not the plugin of the default network"
            )
        if not self._names_networks:
            raise errors.ConfigError(
                f"[kubernetes] pod_selection is annotated: multi_vif_drivers must list "
                f"{NAMED_NETWORK}"
            )

    def _check_neutron_ports(self) -> None:
        """Check the options that NeutronPorts need.

        :raises errors.ConfigError: one is missing.
        """
        for option, name, has in (
            ("multi_vif_drivers", NAMED_NETWORK, self._names_networks),
            ("enabled_handlers", NEUTRON_PORT, self._handles_neutron_ports),
        ):
            if not has:
                raise errors.ConfigError(
                    f"[kubernetes] neutron_ports is not off: {option} must list {name}"
                )

    @property
    def default_is_others(self) -> bool:
        """True if default interfaces are another plugin's, but for Pods that ask for ours."""
        return self._annotated or self._multus == "delegate"

    @property
    def may_be_none(self) -> bool:
        """True if a Pod with a KuryrPort may have no interfaces of ours."""
        return self._annotated or self._multus != "none"

    def takes(self, pod: Pod) -> bool:
        """Return whether the Pod may get interfaces from us, without asking anybody."""
        if not self.default_is_others:
            return True
        if self._multus == "delegate":
            return any(each.may_ask(pod) for each in self.drivers)
        return any(each.names_network(pod) for each in self.drivers)

    @property
    def may_ask_for_floating_ips(self) -> bool:
        """True if Pods can ask for floating IPs."""
        return any(each.asks_for_floating_ips for each in self.drivers)

    def floating_ip(self, pod: Pod) -> str | None:
        """Return which floating IP the Pod asks for: see :meth:`MultiVIFDriver.floating_ip`."""
        asked = (each.floating_ip(pod) for each in self.drivers if each.asks_for_floating_ips)
        return next((each for each in asked if each is not None), None)
