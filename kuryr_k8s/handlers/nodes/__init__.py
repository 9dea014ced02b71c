"""The Neutron port of each Node, by which the node reaches its Pods."""
