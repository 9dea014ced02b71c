"""Drivers of the L7 router, which make Octavia's policies of Ingresses and OpenShift Routes."""
