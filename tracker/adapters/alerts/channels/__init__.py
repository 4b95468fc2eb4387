"""One module per notification service; `opening` selects among them."""
