"""Rankers that are adapted, fitted by counting, or controls; `policies/ranking/rankers.py` finds them by name.

Read `controls.py` first.

    controls.py       constant, longest, shortest, overlap, and any ranker without its context
    terms.py          TF-IDF and BM25
    likelihood.py     response models and language models of this project
    encoders.py       Hugging Face cross-encoders and bi-encoders
    hugging_face.py   what a folder holds, and the encoder of it
"""
