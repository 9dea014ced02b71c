"""Drivers: replaceable decisions and operations, one package for each concern."""
