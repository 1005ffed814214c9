"""Reading and writing of fields, numbers and arrays in files, on command lines and in Python's notation."""
