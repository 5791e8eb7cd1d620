"""Figures, tables and pages from the files of a run; imports nothing of ours but utils.

Its modules load matplotlib and pandas, so scripts import them only where they need them.
"""
