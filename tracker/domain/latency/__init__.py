"""Has a checkpoint become slower?"""
