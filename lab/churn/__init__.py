"""Pods come and go while parts of the lab are restarted; what is left of it afterwards."""
