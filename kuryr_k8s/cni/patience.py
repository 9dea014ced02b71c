"""Durations of the node's half that a test or a slow machine needs to be different."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Durations in seconds.

    :param exchange: for a CNI request to arrive, and for its answer to be taken.
    :param delete: that DEL may take before it is put off, well below its deadline in kuryr-cni;
        and that GC waits for Open vSwitch.
    :param transaction: that a transaction of Open vSwitch's database may take.
    :param openflow: that ovs-vswitchd may take to answer.
    :param nft: that one run of ``nft`` may take.
    :param gateway: that a gateway gets to answer; there may be none behind its address.
    :param kuryrport: that an ADD waits without any KuryrPort; a controller restarts in less.
    :param outage: that a port may carry no traffic before users are told.
    :param look_again: between two looks at what no event reports.
    :param node_interface_look: between two looks at the node's own interface.
    :param internal_port: that ovs-vswitchd may take to make that interface.
    :param node_port_installed: that OVN may take to install its port.
    :param status_interval: between two writes of a KuryrPortPool's status.
    :param node_ports_interval: from a change of node ports to its transaction, and at least from
        the end of one transaction to the next: further changes join it meanwhile.
    """

    exchange: float = 10.0
    delete: float = 30.0
    transaction: float = 10.0
    openflow: float = 5.0
    nft: float = 30.0
    gateway: float = 5.0
    kuryrport: float = 30.0
    outage: float = 1.0
    look_again: float = 30.0
    node_interface_look: float = 2.0
    internal_port: float = 5.0
    node_port_installed: float = 30.0
    status_interval: float = 1.0
    node_ports_interval: float = 0.2


USUAL = Patience()
