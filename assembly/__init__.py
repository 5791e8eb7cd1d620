"""From an experiment to its parts and phases; imported by scripts and tools only."""
