"""Parts that checkpoint-tracker finds by entry point; docs/extending.md explains them."""
