"""The simulator, the scenario library, scoring and benchmarks."""
