"""A sweep put together: trials in processes of their own, the threads that watch them, results."""
