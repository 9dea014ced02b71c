"""The Octavia API v2: load balancers and everything below them."""
