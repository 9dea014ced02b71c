"""Drivers, a handler and a binding for kuryr_k8s, as a third party ships them."""
