"""Choosing a layout by training some, shortly and few: methods, and what they are judged by."""
