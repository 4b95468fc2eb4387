"""How often healthy training runs raise an alarm, and how soon real losses are found: our verdicts beside the peers'.

Simulated runs (series.py) are shown checkpoint by checkpoint (view.py) to the shipped engine (detector.py) and to what
others do (peers.py); scoring.py counts, campaign.py runs them all, table.py prints: `python -m benchmarks.verdicts`.
"""
