"""Client of Barbican, which keeps the certificates of Octavia's listeners."""
