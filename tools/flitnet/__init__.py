"""The command line of flitnet: starts and stops clusters, runs the demo, tests and benchmarks."""
