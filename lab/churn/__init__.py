"""Pods that come and go while parts of the lab are restarted, and a look at what is left over."""
