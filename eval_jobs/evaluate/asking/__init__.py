"""How questions are asked, whichever harness asks them: one client, one retry policy, one view of failures."""
