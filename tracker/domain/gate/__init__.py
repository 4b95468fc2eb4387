"""May a candidate replace a baseline?"""
