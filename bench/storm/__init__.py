"""`bench storm`: exhausted quota, an outage of Neutron, mass deletion."""
