"""Commands that set a project up."""
