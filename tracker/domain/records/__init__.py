"""Records of the tracker: gaps, verdicts, reports, alerts, channels."""
