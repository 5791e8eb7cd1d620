"""A sweep put together: trials in processes of their own, workers, the parent, results."""
