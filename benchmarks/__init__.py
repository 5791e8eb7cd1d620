"""One script per claim; each prints its table and says what it ran on."""
