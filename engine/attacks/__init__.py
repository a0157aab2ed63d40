"""Attacks on dialogue agents as pure algorithms: torch and numpy, one process, no Ray.

`reinforce.py` is the learning rule of the RL attack and of goal-based agents; `transfer.py` plugs learned sentences in.
"""
