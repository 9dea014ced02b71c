"""Drivers that ask for interfaces besides the default one (slot ``multi_vif``)."""
