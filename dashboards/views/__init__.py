"""Records -> contents of a page: texts, rows, tiles and figures. Pure."""
