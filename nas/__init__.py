"""Search: Gumbel draws, tau, estimators, the search step, derivation, comparison."""
