"""Deal or No Deal (Lewis et al. 2017), the first game: its rules, and the `Domain` that they make."""
