"""The same cases on the fake Neutron and on the real one: they keep the fake honest."""
