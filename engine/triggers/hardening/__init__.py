"""Chat models trained against triggers and perturbations: `parley train hardened`. Read `hardened.py` first."""
