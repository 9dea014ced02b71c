"""The node's Open vSwitch. Only this package speaks OVSDB or OpenFlow."""
