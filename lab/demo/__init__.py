"""The demonstration: Pods with Neutron ports and Services with load balancers."""
