"""The product on the lab."""
