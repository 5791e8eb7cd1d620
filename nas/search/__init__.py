"""The search: its step, estimators, schedules and bounds, and the path that pi takes."""
