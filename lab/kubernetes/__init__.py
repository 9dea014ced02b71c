"""The control plane and the nodes of Kubernetes on the lab."""
