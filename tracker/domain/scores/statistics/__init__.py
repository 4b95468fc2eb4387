"""Statistics of samples: means, paired differences, clusters and screened parts. Pure."""
