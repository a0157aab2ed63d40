"""Jobs on rankers that choose a reply among candidates (li2019). Read `ranking.py` first."""
