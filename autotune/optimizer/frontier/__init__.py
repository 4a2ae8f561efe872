"""A sampler that starts from predictions and lets measurements correct them."""
