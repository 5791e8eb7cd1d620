"""What layouts cost: amounts and budgets, and times measured of passes and training steps."""
