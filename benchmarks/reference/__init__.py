"""What the speed claims are measured against: our own plain versions, never used by the product."""
