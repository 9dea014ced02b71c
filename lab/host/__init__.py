"""Namespaces, links, control groups and mounts of the machine that the lab runs on."""
