"""Load balancers of Octavia (slot ``endpoints_lbaas``)."""
