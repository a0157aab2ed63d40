"""Jobs on bots that look for the friend both have (niu2018, the collaborative task). Read `evaluate.py` first."""
