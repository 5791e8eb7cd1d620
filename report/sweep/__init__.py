"""The page of a sweep: its trials, their front, and which settings mattered."""
