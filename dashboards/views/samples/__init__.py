"""Lost and gained samples, with their texts."""
