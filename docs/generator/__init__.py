"""Writes the generated pages of the documentation: `make docs`. Nothing of it is part of the product."""
