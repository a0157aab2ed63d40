"""Fits of reply models, which trigger search and perturbations share. Read `seq2seq.py` first."""
