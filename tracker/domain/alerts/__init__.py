"""Which alerts are open, how they are delivered, what they say."""
