"""What was read of trainers' logs, in the database."""
