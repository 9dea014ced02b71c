"""`bench pods`: Pods at once."""
