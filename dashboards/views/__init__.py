"""Records -> what a page says: texts, rows, tiles and figures. Pure."""
