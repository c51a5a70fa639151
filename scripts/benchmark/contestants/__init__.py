"""The contestants: scripts that run the programs to measure. Each script runs in the Python environment that has its packages.
It answers each request with the time of a burst, such as some training steps or the decoding of some sentences."""
