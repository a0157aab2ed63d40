"""Jobs of perturbations (niu2018): robustness evaluation, adversarial training. Read `config.py`, then `robustness.py`."""
