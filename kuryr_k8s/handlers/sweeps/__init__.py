"""Periodic searches for cloud objects that nothing names any more."""
