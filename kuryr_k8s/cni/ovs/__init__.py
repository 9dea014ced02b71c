"""The node's Open vSwitch. No other package speaks OVSDB or OpenFlow."""
