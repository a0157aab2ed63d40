"""DynoNet: a model that looks for a common friend, with a knowledge graph that grows and changes as people talk.

Source: He, Balakrishnan, Eric, Liang 2017 (arXiv 1704.07130), "Learning Symmetric Collaborative Dialogue Agents with
Dynamic Knowledge Graph Embeddings". Read `model.py` first, then `reading.py` (the model's view of a chat) and `agent.py` (the
player).
"""
