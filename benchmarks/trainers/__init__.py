"""Real trainers beside `tracker watch`, each in an environment of its own."""
