"""A sweep put together: its trials, the threads that run them, what they came to."""
