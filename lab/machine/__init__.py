"""Nodes of the cluster that are virtual machines, behind a trunk port: `up --vm 1`.

QEMU runs them without KVM. A machine's root is the lab's own machine, read-only, below a tmpfs; so
its containerd, kubelet and kuryr-k8s-daemon are the lab's, and start as its components, each
through a client that speaks to an agent in the machine.
"""
