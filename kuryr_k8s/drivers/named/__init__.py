"""Find networks, subnets, security groups and QoS policies that users name, by id or name.

Annotations of Pods and specs of NeutronPorts name them. Each is read once a minute at most, and
checked against what Neutron shares with the project and what ``[policy]`` grants.
"""
