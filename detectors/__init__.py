"""Pure detection: kernels, one module a detector family, correlation. No I/O, no clock."""
