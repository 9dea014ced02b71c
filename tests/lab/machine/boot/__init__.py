"""A master of its own that systemd boots in a virtual machine, by the units as they are shipped.

The host's / is its root, read-only, below a disk that outlives a loss of power. On it run
containerd, kubelet, Open vSwitch, and as static Pods etcd and the API server. A fake cloud outside
is OpenStack; a unit says «ovn-installed» in place of ovn-controller.
"""
