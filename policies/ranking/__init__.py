"""Rankers of candidate replies; `rankers.py` loads them by name. Read `ranker.py` first.

ranker.py             the protocol; constant, longest, shortest, overlap, any ranker without its context; TF-IDF and BM25
likelihood.py         response models and language models of this project
encoders.py           Hugging Face cross-encoders and bi-encoders
sentence_modules.py   the modules of sentence-transformers
matching              SMN, DAM and MRFN
editor.py             a policy that attacks rankers by editing replies
"""
