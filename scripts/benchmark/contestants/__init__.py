"""The contestants: scripts that run the programs to measure, each in the Python environment that has its packages."""
