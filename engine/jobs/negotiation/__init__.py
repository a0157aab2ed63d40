"""Jobs of negotiation (cheng2019): plays, trainings, attacks and campaigns. Read `match.py` first, then `reinforce.py`."""
