"""A paraphraser: the pointer-generator network of See et al. 2017, which writes a sentence anew or copies words of it.

Read `model.py`: the network, its supervised training, and beam search.
"""
