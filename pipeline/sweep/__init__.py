"""A sweep put together: its trials, the processes that run them, what they came to."""
