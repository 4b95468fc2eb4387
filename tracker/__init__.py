"""Memory and judgement: discovery, history, tracking, verdicts, alerts, the command line."""
