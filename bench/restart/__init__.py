"""`bench restart`: the start of the controller beside many Pods."""
