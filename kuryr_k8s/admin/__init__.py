"""The controller's own API: status and pools of ports by HTTP, changes by a UNIX socket."""
