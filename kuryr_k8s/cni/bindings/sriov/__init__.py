"""Virtual functions (VFs) of the node's network cards: which Pod has which one, and its plugging.

``binding.py`` plugs them. ``devices.py`` names in the KuryrPort which VFs a Pod has, by what the
kubelet tells (``pod_resources.py``, ``claims.py``) or by its own choice, where the daemon offers
VFs itself (``capacity.py``). ``cards.py`` reads what the kernel knows of cards.
"""
