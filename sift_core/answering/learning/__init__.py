"""What learns at query time: settings, the training loop, adapters and where they are kept."""
