"""Files in which trainers leave their settings."""
