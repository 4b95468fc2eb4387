"""Losses over time: the incidents, where each begins and ends, and the checkpoints that show it."""
