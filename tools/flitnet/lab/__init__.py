"""The laboratory: every result of the papers is one named experiment, run from data, and judged."""
