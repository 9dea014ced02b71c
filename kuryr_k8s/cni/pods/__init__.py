"""The attachments of the node's Pods, and the KuryrPorts that they are made from."""
