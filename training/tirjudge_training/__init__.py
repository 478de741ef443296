"""Training of judges: data, supervised learning, reinforcement learning, validation and checkpoints."""
