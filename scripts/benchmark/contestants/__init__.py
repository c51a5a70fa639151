"""The programs measured, each a script of its own, run by the interpreter that has what it imports."""
