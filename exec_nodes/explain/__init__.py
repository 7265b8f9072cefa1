"""How plans print what they read and which rows they keep."""
