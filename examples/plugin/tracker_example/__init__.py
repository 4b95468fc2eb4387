"""Parts that checkpoint-tracker finds by entry point; docs/how-to/plugins.md explains them."""
