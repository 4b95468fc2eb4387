"""Rules, texts and delivery of alerts."""
