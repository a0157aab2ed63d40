"""Reinforcement learning of adapters in RLlib: settings, runner, learner, algorithm."""
