"""Handlers: each reconciles one kind of object."""
