"""A real OpenStack and a real Kubernetes on one machine, for development and tests.

Keystone, Neutron (ML2/OVN), Barbican and Octavia, etcd and the Kubernetes control plane, and N
nodes, each with Open vSwitch, ovn-controller, containerd and kubelet of its own. Nothing needs
Docker, systemd or a kernel module. `python -m lab up` starts it; README.md describes it.
"""
