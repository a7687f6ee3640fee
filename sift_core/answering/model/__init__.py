"""A causal language model: prompts, generation, turns, and whether its weights are as they were."""
