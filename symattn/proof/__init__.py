"""What decides that an equality holds, and for which sizes."""
