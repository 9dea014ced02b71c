"""OpenStack networking for Kubernetes: Neutron ports for Pods, Octavia for Services."""
