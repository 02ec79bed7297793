"""Pure detection: kernels and one module a detector family, and correlation. No I/O, no clock, no log."""
