import os

# Pages of 2 MB for torch's large tensors on Linux, where the system gives them to who asks: fewer to be looked up in every pass
# over memory. torch reads this once, when it is imported.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
