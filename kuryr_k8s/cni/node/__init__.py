"""The path from the node to its Pods: the interface ``kuryr0``, as the Node's annotation says."""
