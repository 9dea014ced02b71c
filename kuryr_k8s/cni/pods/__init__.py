"""The attachments of the node's Pods: CNI requests, KuryrPorts and parked ports."""
