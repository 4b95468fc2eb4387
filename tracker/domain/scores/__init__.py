"""From samples to means, pairs, series and matrices."""
