"""NeutronPorts: ports in Neutron with lives of their own."""
