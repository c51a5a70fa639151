"""The programs to measure. Each is a script, run by the interpreter of the environment that has its packages. At each request,
it performs a burst, such as some training steps or the decoding of some sentences, and answers with the time that it took."""
