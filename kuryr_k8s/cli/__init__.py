"""The command-line program ``kuryr-k8s``."""
