"""What verbs and tools are made of: the experiment, the phases, comparisons, sweeps."""
