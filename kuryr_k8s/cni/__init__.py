"""The node's half of the product: the CNI plugin kuryr-cni and the daemon kuryr-k8s-daemon."""
