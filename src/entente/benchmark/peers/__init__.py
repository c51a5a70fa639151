"""Scripts, each run by the interpreter that has its program; nothing here is imported by the package."""
