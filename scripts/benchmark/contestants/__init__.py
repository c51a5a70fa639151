"""The programs to measure. Each is a script, run by the interpreter of the environment that has its packages."""
