"""The codec: values, numbers and arrays as files, command lines and Python write them, and how they are read."""
