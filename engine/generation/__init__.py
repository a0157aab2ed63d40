"""Adversarial generation of replies: rewards from a discriminator, word by word, and the losses that they weigh.

    from parley.engine.generation import RewardSettings, reply_actions, rollout_rewards

Source: Li et al. 2017 (arXiv 1701.06547), sections 3.1 to 3.3. `rewards/rewards.py` holds rewards, the Monte
Carlo search, baselines and losses: functions of tensors in one process. Callers decide which examples are sampled, and when.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "ReplyActions": "rewards.rewards",
        "RewardSettings": "settings",
        "RunningMean": "rewards.rewards",
        "policy_loss": "rewards.rewards",
        "prefix_rewards": "rewards.rewards",
        "reply_actions": "rewards.rewards",
        "reply_rewards": "rewards.rewards",
        "rollout_rewards": "rewards.rewards",
    },
)
