"""A program under the restrictions of its systemd unit, on a machine without systemd.

    python3 -m lab.kuryr.sandbox [--directories DIR] UNIT PROGRAM [ARGUMENT...]

The unit is read each time, so that what the lab runs under and what is shipped cannot drift: an
option that is neither carried out here nor known to be no restriction is an error. The package
needs nothing but the standard library and libseccomp, and is copied beside what it starts.
"""
