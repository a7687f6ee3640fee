"""From rows to statistics and tables; NumPy alone."""
