"""OVN and Open vSwitch on the lab."""
