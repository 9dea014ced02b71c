"""`bench cni` and `bench nested`: the node's part."""
