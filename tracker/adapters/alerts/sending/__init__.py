"""What channels share: HTTP posting, limits, Markdown, reading of answers."""
