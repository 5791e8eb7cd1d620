"""Sweeps: the space of settings, who suggests the next ones, where trials wait, run and end."""
