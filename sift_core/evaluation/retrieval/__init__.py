"""How much of what answers a question is among the chosen: data, methods, metrics."""
