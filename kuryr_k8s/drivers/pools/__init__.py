"""Pools of ports made before their Pods (slot ``vif_pool``)."""
