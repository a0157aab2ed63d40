"""Jobs of trigger search (he2018): searches, tables of lists, enumeration. Read `config.py`, then `search.py`."""
