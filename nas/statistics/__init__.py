"""What figures allow to be said: intervals, p values, paired scores, ranks and agreement."""
