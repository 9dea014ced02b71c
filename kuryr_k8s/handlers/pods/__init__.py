"""Handlers of Pods and KuryrPorts."""
